"""Detects that the store of this manager is an older copy of the one that the cluster has used (I15).

Nodes report the newest version of the routing that they have seen. The right store has every version that was published
before this term. So a node that has seen a newer one, which this term has not published either, has it from a newer
store. Versions that the term makes itself prove nothing: an older copy would count up to the same numbers, with other
content. So nothing is changed before the nodes have reported that would know of a newer store: those with the targets
that serve, and with those that are filled from them, because one that was full may have gone on alone. Where none
serves it is all nodes of the chain: it may have gone on with one that served last, or, by the word of an administrator,
with any other. One that was away while a newer store was in use knows nothing of it, so all are waited for, until T has
passed. Until then no node is told to keep a version that the term has made, because the right store would take it for a
newer one. After the first contradiction nothing is served.
"""

import asyncio
import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from threefs.env.clock import Clock
from threefs.errors import StrangeStore, Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import ChainMember, PublicState, Routing
from threefs.wire import manager_pb2 as pb

#: The others of a chain that serves come back by one of these, which then knows of it.
_MAY_KNOW = (PublicState.SERVING, PublicState.SYNCING)


class Inquires(Protocol):
    def reason(self) -> str: ...


class StaleStoreDetector:
    """Of one term as primary."""

    def __init__(self, routing: Routing, clock: Clock) -> None:
        """`routing` is that in the store when the term began."""
        self._clock = clock
        self._lease_s = routing.lease_s
        self._awaited_until = clock.monotonic() + routing.lease_s
        chains = routing.chains.values()
        in_service = [m for chain in chains for m in chain.members if m.state in _MAY_KNOW]
        #: Those that leases wait for. A chain may miss its last disk for weeks, and only changes wait for that one.
        self._in_service = _nodes_of(in_service, routing)
        unserved = [m for chain in chains if not chain.serving for m in chain.members]
        self._awaited = self._in_service | _nodes_of(unserved, routing)
        self._all_heard = asyncio.Event()
        self._is_known = False  # a node that may know of a newer store has reported none
        self._failure: StrangeStore | None = None
        self._version_at_start = routing.version
        self._newest_published = routing.version  # the newest that a node can have from this store

    async def wait_heard(self) -> None:
        """Wait until all nodes that are waited for have been heard, T has passed, or the term has ended. Raises
        StrangeStore."""
        waited_until = -math.inf
        while self._awaited and waited_until < self._awaited_until:  # a suspension puts it off
            waited_until = self._awaited_until
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(waited_until - self._clock.monotonic()):
                    await self._all_heard.wait()
        self.check_fresh()

    def end_term(self) -> None:
        """Nobody who waits need wait any longer: another manager may answer."""
        self._all_heard.set()

    def on_suspension(self, suspended_s: float) -> None:
        """This process did not run until now: a part of T in which it could hear nobody does not count."""
        now = self._clock.monotonic()
        if now - suspended_s < self._awaited_until:
            self._awaited_until = now + self._lease_s

    def on_refused(self, node_id: int) -> None:
        """This node could not be heard, because its heartbeat was refused (R10). It is waited for anew."""
        if node_id in self._left():
            self._awaited_until = self._clock.monotonic() + self._lease_s

    def _left(self) -> list[NodeId]:
        """The nodes that have not been heard yet, as long as they are waited for."""
        return sorted(self._awaited) if self._clock.monotonic() < self._awaited_until else []

    def check_heard(self) -> None:
        """Raises Unavailable while nodes are waited for: the next term would take what this one adds for what the store
        had."""
        if left := self._left():
            nodes = ", ".join(map(str, left))
            raise Unavailable(f"this manager has just become primary, and has not heard yet of storage nodes {nodes}")

    def renewable(self, leased: Sequence[TargetId], request: pb.HeartbeatRequest) -> Sequence[TargetId]:
        """Of these targets of a node, those that may hold a lease now. The chain of one that had none for long may have
        gone on without it in a newer store, and it may know nothing of that."""
        if self._in_service.isdisjoint(self._left()):
            return leased
        lapsed = {report.target_id for report in request.targets if report.lease_lapsed}
        return [target for target in leased if target not in lapsed]

    @property
    def confirmed(self) -> bool:
        """The nodes that would know of a newer store have reported none."""
        return self._is_known and not self._left()

    async def wait_confirmed(self, cluster_id: str, inquiry: Inquires | None) -> None:
        """Wait until it is known that this is the cluster's own store. `cluster_id` is empty before `init`; an inquiry
        is under way after a restore. Raises StrangeStore, and Unavailable while nobody can say."""
        if inquiry is not None:
            raise Unavailable(inquiry.reason())
        await self.wait_heard()
        if not (cluster_id and self.confirmed):
            raise Unavailable(
                "no node has confirmed yet that this manager has the newest store of its cluster, so a backup would "
                "perhaps lose what it has; start the services, or put the right store in its place"
            )

    def on_published(self, version: int) -> int:
        """A node may be sent this version now. Returns what it is to keep: 0 as long as the store may be a copy."""
        if not self.confirmed:
            return 0
        self._newest_published = max(self._newest_published, version)
        return version

    def on_heard(self, node_id: int) -> None:
        """This storage node has contradicted nothing. One with a new disk knows of no store; and if all disks are new,
        nobody knows of a newer one."""
        self._is_known = True
        self._awaited.discard(NodeId(node_id))
        if not self._awaited:
            self._all_heard.set()

    def check(self, request: pb.RegisterRequest | pb.HeartbeatRequest, *, keeps_chains: bool) -> None:
        """Raises StrangeStore if the node has seen a newer version, or if the store was found to be older before.

        A storage node keeps the versions of its chains. A meta service that is new knows what this term has published,
        and of no other store.
        """
        if request.routing_version > self._newest_published and self._failure is None:
            self._failure = StrangeStore(
                f"the manager's store is an older copy: node {request.node_id} has seen version "
                f"{request.routing_version} of the routing, and the store had {self._newest_published}. Put the newest "
                "one in its place, or restore a backup: `threefs restore BACKUP` (docs/backup.md)"
            )
        self.check_fresh()
        if keeps_chains:
            self.on_heard(request.node_id)
        if 0 < request.routing_version <= self._version_at_start:
            self._is_known = True

    def check_chains(self, routing: Routing, request: pb.RegisterRequest | pb.HeartbeatRequest) -> None:
        """Raises StrangeStore if a target keeps a newer version of its chain than the manager's store has, or acts in
        one: an older copy may have counted its routing up to the versions that nodes have seen, in earlier terms."""
        if isinstance(request, pb.RegisterRequest):
            known = [(store.target_id, store.kept.chain.chain_id, store.kept.chain.version) for store in request.stores]
        else:
            of = routing.targets
            known = [(t.target_id, of[TargetId(t.target_id)].chain_id, t.chain_version) for t in request.targets]
        for target, chain_id, version in known:
            chain = routing.chains.get(ChainId(chain_id))
            if chain is not None and version > chain.version and self._failure is None:
                self._failure = StrangeStore(
                    f"the manager's store is an older copy: target {target} of node {request.node_id} has seen version "
                    f"{version} of chain {chain_id}, and the store has {chain.version}. Put the newest one in its "
                    "place, or restore a backup: `threefs restore BACKUP` (docs/backup.md)"
                )
        self.check_fresh()

    def check_fresh(self) -> None:
        """Raises StrangeStore if the store was found to be an older copy."""
        if self._failure is not None:
            raise StrangeStore(self._failure.message)


def _nodes_of(members: Iterable[ChainMember], routing: Routing) -> set[NodeId]:
    return {routing.targets[member.target_id].node_id for member in members}
