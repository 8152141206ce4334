"""What a primary asks all storage nodes after its store was restored from a backup: what they know of their chains.

A backup lacks the last changes of chains. A target that was put out of its chain meanwhile is a serving one in it, and
does not have what was acknowledged since. So nothing is served before every store has told the newest version of its
chain that it keeps: what was acknowledged in a version is on a target that keeps that version or a newer one. A store
that is new, or damaged, knows nothing; what was in its place is waited for, until somebody says that it is gone for
good. Nodes give their leases up before they tell.
"""

import asyncio
from collections.abc import Iterable

from threefs.env.clock import Clock
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import PublicState, Routing
from threefs.wire import manager_pb2 as pb

#: Beyond all versions that a chain comes to; what is made from it must fit into 32 bits.
_NO_VERSION = 1 << 31
_STATES = frozenset(int(state) for state in PublicState)


class Inquiry:
    """Of one term. What was told in an earlier one is told again."""

    def __init__(self, routing: Routing, clock: Clock) -> None:
        """`routing` is that of the backup."""
        self.newest: dict[ChainId, pb.KeptChain] = {}
        self.done = asyncio.Event()
        self._routing = routing
        self._clock = clock
        self._began = clock.monotonic()
        self._awaited: set[TargetId] = set(routing.targets)
        self._look()

    @property
    def nodes(self) -> list[NodeId]:
        """Those that are waited for, wholly or for one of their stores."""
        return sorted({self._routing.targets[target].node_id for target in self._awaited})

    def hear(self, request: pb.RegisterRequest) -> None:
        """A storage node tells. Raises NotFound if it is not in the plan, InvalidArgument for what no chain can be."""
        for store in request.stores:
            target = self._routing.targets.get(TargetId(store.target_id))
            if target is None or target.node_id != request.node_id:
                raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
            if not store.HasField("kept") or store.kept.chain.chain_id != target.chain_id:
                continue
            _check(request.node_id, store.kept.chain)
            known = self.newest.get(target.chain_id)
            if known is None or known.chain.version < store.kept.chain.version:
                self.newest[target.chain_id] = store.kept
            self._awaited.discard(target.target_id)
        self._look()

    def give_up(self, nodes: Iterable[int]) -> None:
        """Wait for these no longer. Raises InvalidArgument, Unavailable."""
        given_up = set(nodes)
        if strange := sorted(given_up - set(self.nodes)):
            raise InvalidArgument(f"node {strange[0]} is not waited for; those that are: {self.in_words()}")
        rest_s = self._began + self._routing.lease_s - self._clock.monotonic()
        if rest_s > 0:
            raise Unavailable(
                f"not before {rest_s:.0f} s from now: until then a node that is only cut off may believe that it serves"
            )
        self._awaited = {t for t in self._awaited if self._routing.targets[t].node_id not in given_up}
        self._look()

    def in_words(self) -> str:
        return ", ".join(map(str, self.nodes))

    def why(self) -> str:
        return (
            "the store of the manager was restored, and nothing is served before all storage nodes have said what they "
            f"know of their chains; awaited: {self.in_words() or 'nobody any more'}. Start them; if their disks are "
            "lost for good: `threefs chain accept-unheard` (docs/backup.md)"
        )

    def _look(self) -> None:
        if not self._awaited:
            self.done.set()


def _check(node_id: int, chain: pb.Chain) -> None:
    if chain.version >= _NO_VERSION or any(int(member.state) not in _STATES for member in chain.members):
        raise InvalidArgument(f"node {node_id} tells of chain {chain.chain_id} in a version or state that cannot be")
