"""Inquiry: after its store was restored from a backup, a primary asks every storage node for the newest version of its
chains.

A backup lacks the last changes of chains. In it, a target may serve that was put out of its chain after the backup, and
that does not have what was acknowledged since. So nothing is served before every target's store has reported the newest
version of its chain that it keeps: what was acknowledged in a version is on a target that keeps that version or a newer
one. A store that is new or damaged keeps none. The primary goes on waiting for the store that was in its place, until
an administrator says that it is lost for good. Nodes give their leases up before they report.

A chain may have got members since the backup, and lost others for good. The stores of new members report as well, and
are waited for once one of them or another member has named them. A target that the newest version of its chain has not
as a member any more is not waited for, also if that is the version of the backup: ids are not given out twice, so it is
a member of no later version either.

A node may have a store that the backup does not name, and that it cannot read. That one may know the newest version of
a chain, so it is waited for as well: until its node reports again and can read it, or an administrator gives it up.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from threefs import routing as routing_module
from threefs.env.clock import Clock
from threefs.errors import InvalidArgument, NotFound, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.store import restored_versions

#: Beyond every version that a chain reaches. The version that is made from it must fit into 32 bits.
_NO_VERSION = 1 << 31
_CHECK_S = 0.2
_STATES = frozenset(int(state) for state in PublicState)


class Inquiry:
    """Of one term as primary. In the next one all nodes report again."""

    def __init__(self, routing: Routing, clock: Clock) -> None:
        """`routing` is the routing of the backup."""
        self.newest_chains: dict[ChainId, pb.KeptChain] = {}
        self.highest_target = 0  # that a node knows
        self.done = asyncio.Event()
        self._routing = routing
        self._clock = clock
        self._started_at = clock.monotonic()
        self._targets = dict(routing.targets)  # and those that nodes have named
        self._of_chain: dict[ChainId, list[TargetId]] = {}
        for target in routing.targets.values():
            self._of_chain.setdefault(target.chain_id, []).append(target.target_id)
        self._awaited = {target.target_id for target in routing.targets.values() if not routing.is_removed(target)}
        self._unreadable: dict[TargetId, NodeId] = {}  # stores that the backup does not name, and their nodes
        self._abandoned: set[int] = set()  # nodes that are not waited for any more
        self._check_done()

    async def wait_done(self, check_fresh: Callable[[], None]) -> None:
        """Wait for all reports. Raises what `check_fresh` raises, soon after a node has said that the store is strange:
        then the reports never come."""
        while not self.done.is_set():
            check_fresh()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self.done.wait()
        check_fresh()

    @property
    def awaited_nodes(self) -> list[NodeId]:
        """Nodes of which at least one store has not reported."""
        return sorted({self._targets[target].node_id for target in self._awaited} | set(self._unreadable.values()))

    def on_register(self, request: pb.RegisterRequest) -> None:
        """Take in what a storage node reports. A store that its own chain does not name was set aside after an earlier
        restore, or was never filled: if the backup does not name it either, it knows nothing.

        Raises NotFound for a target that is not its own, InvalidArgument for a chain that cannot exist.
        """
        unnamed = [store for store in request.unnamed_stores if self._is_named(store)]
        for store in (*request.stores, *unnamed):
            target = self._targets.get(TargetId(store.target_id)) or self._named_by_itself(store)
            if target is None or target.node_id != request.node_id:
                raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
            if not store.HasField("kept") or store.kept.chain.chain_id != target.chain_id:
                continue
            _check_chain(request.node_id, store.kept.chain)
            self._take(store.kept)
            self._awaited.discard(target.target_id)
        self.highest_target = max(self.highest_target, restored_versions.highest_target(request))
        self._note_unreadable(request)
        self._check_done()

    def _note_unreadable(self, request: pb.RegisterRequest) -> None:
        """A store that its node cannot read comes without its identity. One that is named is awaited anyway, unless it
        cannot know anything new."""
        node_id = NodeId(request.node_id)
        self._unreadable = {target: node for target, node in self._unreadable.items() if node != node_id}
        unread = [TargetId(store.target_id) for store in request.unnamed_stores if not store.store_id]
        if node_id not in self._abandoned:
            self._unreadable |= {target: node_id for target in unread if target not in self._targets}

    def _is_named(self, store: pb.Store) -> bool:
        return TargetId(store.target_id) in self._targets or self._named_by_itself(store) is not None

    def _named_by_itself(self, store: pb.Store) -> Target | None:
        """A target that the backup does not have, as its own store describes it."""
        if store.kept.chain.chain_id not in self._routing.chains:
            return None
        named = (target for target in store.kept.targets if target.target_id == store.target_id)
        return next((routing_module.target_from_wire(target) for target in named), None)

    def _take(self, kept: pb.KeptChain) -> None:
        chain_id = ChainId(kept.chain.chain_id)
        known = self.newest_chains.get(chain_id)
        if known is not None and known.chain.version >= kept.chain.version:
            return
        self.newest_chains[chain_id] = kept
        if kept.chain.version <= self._routing.chains[chain_id].version:
            return
        members = {member.target_id for member in kept.chain.members}
        self._awaited.difference_update(t for t in self._of_chain[chain_id] if t not in members)
        for target in map(routing_module.target_from_wire, kept.targets):
            if target.target_id not in self._targets:
                self._targets[target.target_id] = target
                self._of_chain[chain_id].append(target.target_id)
                self._awaited.add(target.target_id)

    def stop_awaiting(self, nodes: Sequence[int]) -> None:
        """Wait for these nodes no longer. Raises InvalidArgument, Unavailable."""
        awaited = self.awaited_without(nodes)
        self._awaited = {t for t in self._awaited if self._targets[t].node_id in awaited}
        self._unreadable = {target: node for target, node in self._unreadable.items() if node in awaited}
        self._abandoned.update(nodes)  # they report again, every second
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
            f"reported the newest version of its chains; awaited: {self.format_awaited() or 'none'}. Start them, "
            f"and look into the log of one that runs: it has a store that it cannot open{self._format_unreadable()}; "
            "if their disks are lost for good, run `threefs chain accept-unheard` (docs/backup.md)"
        )

    def _format_unreadable(self) -> str:
        stores = ", ".join(f"target {target} of node {node}" for target, node in sorted(self._unreadable.items()))
        return f" (nobody could read {stores})" if stores else ""

    def _check_done(self) -> None:
        if not (self._awaited or self._unreadable):
            self.done.set()


def _check_chain(node_id: int, chain: pb.Chain) -> None:
    if chain.version >= _NO_VERSION or any(int(member.state) not in _STATES for member in chain.members):
        raise InvalidArgument(
            f"node {node_id} reports chain {chain.chain_id} in version {chain.version}, with members in states "
            f"{[int(member.state) for member in chain.members]}: such a chain cannot exist"
        )
