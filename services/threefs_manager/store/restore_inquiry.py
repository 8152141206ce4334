"""Inquiry: after its store was restored from a backup, a primary asks every storage node for the newest version of its
chains.

A backup lacks the last changes of chains. In it, a target may serve that was put out of its chain after the backup, and
that does not have what was acknowledged since. So nothing is served before every target's store has reported the newest
version of its chain that it keeps: what was acknowledged in a version is on a target that keeps that version or a newer
one. A store that is new or damaged keeps none. The primary goes on waiting for the store that was in its place, until
an administrator says that it is lost for good. Nodes give their leases up before they report.
"""

import asyncio
from collections.abc import Sequence

from threefs.env.clock import Clock
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import PublicState, Routing
from threefs.wire import manager_pb2 as pb

#: Beyond every version that a chain reaches. The version that is made from it must fit into 32 bits.
_NO_VERSION = 1 << 31
_STATES = frozenset(int(state) for state in PublicState)


class Inquiry:
    """Of one term as primary. In the next one all nodes report again."""

    def __init__(self, routing: Routing, clock: Clock) -> None:
        """`routing` is the routing of the backup."""
        self.newest_chains: dict[ChainId, pb.KeptChain] = {}
        self.done = asyncio.Event()
        self._routing = routing
        self._clock = clock
        self._started_at = clock.monotonic()
        self._awaited: set[TargetId] = set(routing.targets)
        self._check_done()

    @property
    def awaited_nodes(self) -> list[NodeId]:
        """Nodes of which at least one store has not reported."""
        return sorted({self._routing.targets[target].node_id for target in self._awaited})

    def on_register(self, request: pb.RegisterRequest) -> None:
        """Take in what a storage node reports.

        Raises NotFound for a target that is not its own, InvalidArgument for a chain that cannot exist.
        """
        for store in request.stores:
            target = self._routing.targets.get(TargetId(store.target_id))
            if target is None or target.node_id != request.node_id:
                raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
            if not store.HasField("kept") or store.kept.chain.chain_id != target.chain_id:
                continue
            _check_chain(request.node_id, store.kept.chain)
            known = self.newest_chains.get(target.chain_id)
            if known is None or known.chain.version < store.kept.chain.version:
                self.newest_chains[target.chain_id] = store.kept
            self._awaited.discard(target.target_id)
        self._check_done()

    def stop_awaiting(self, nodes: Sequence[int]) -> None:
        """Wait for these nodes no longer. Raises InvalidArgument, Unavailable."""
        awaited = self.awaited_without(nodes)
        self._awaited = {t for t in self._awaited if self._routing.targets[t].node_id in awaited}
        self._check_done()

    def awaited_without(self, nodes: Sequence[int]) -> list[NodeId]:
        """The nodes that are awaited still if one waits for these no longer. Raises InvalidArgument, Unavailable."""
        abandoned = set(nodes)
        if unexpected := sorted(abandoned - set(self.awaited_nodes)):
            raise InvalidArgument(f"node {unexpected[0]} is not awaited; awaited nodes: {self.format_awaited()}")
        remaining_s = self._started_at + self._routing.lease_s - self._clock.monotonic()
        if remaining_s > 0:
            raise Unavailable(
                f"try again in {remaining_s:.0f} s: until then a node that is only disconnected may still believe that "
                "it serves"
            )
        return [node for node in self.awaited_nodes if node not in abandoned]

    def format_awaited(self) -> str:
        return ", ".join(map(str, self.awaited_nodes))

    def reason(self) -> str:
        return (
            "the manager's store was restored from a backup, and nothing is served before every storage node has "
            f"reported the newest version of its chains; awaited: {self.format_awaited() or 'none'}. Start them; "
            "if their disks are lost for good, run `threefs chain accept-unheard` (docs/backup.md)"
        )

    def _check_done(self) -> None:
        if not self._awaited:
            self.done.set()


def _check_chain(node_id: int, chain: pb.Chain) -> None:
    if chain.version >= _NO_VERSION or any(int(member.state) not in _STATES for member in chain.members):
        raise InvalidArgument(
            f"node {node_id} reports chain {chain.chain_id} in version {chain.version}, with members in states "
            f"{[int(member.state) for member in chain.members]}: such a chain cannot exist"
        )
