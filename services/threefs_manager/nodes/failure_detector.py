"""The failure detector: what nodes report in heartbeats, which are dead because they are silent, and leases.

A node that is silent for T (`Settings.lease_s` of the manager) is dead. A target's lease lasts T/2 from the sending of
the heartbeat that it was granted for, so it has ended by then. Everything is kept in memory only: nodes report to a new
primary soon, and it waits T before it takes any of them for dead (R9).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from threefs.env.clock import Clock
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, LocalState, Node, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.nodes.clock_rates import ClockRates
from threefs_manager.stale_stores.target_stores import StoreGenerations

_IN_WRITE_PATH = (PublicState.SERVING, PublicState.SYNCING)


@dataclass(slots=True)
class _Node:
    heard_at: float
    incarnation: int
    targets: Sequence[pb.TargetReport] = ()
    unreachable: Sequence[pb.UnreachablePeer] = ()  # storage nodes that it cannot reach, as it said last
    routing_version: int = 0  # the newest that it was told of
    release: str = ""  # of its program
    configuration: pb.ConfigurationReport | None = None  # None: it has not said it
    stray_stores: pb.StrayStores | None = None  # None: it has said of none
    confirmed: bool = False  # it has sent a heartbeat, not only a registration
    dead: bool = False  # known to have ended; messages of it that come late do not count


class FailureDetector:
    """The state of the nodes, as far as one term as primary knows it."""

    def __init__(self, clock: Clock, generations: StoreGenerations | None = None) -> None:
        self.generations = generations or StoreGenerations()
        self.clock_rates = ClockRates(clock)
        self._clock = clock
        self._term_started_at = clock.monotonic()
        #: Since when this process has run without a gap. A silence counts only from then on.
        self._listening_since = self._term_started_at
        self._nodes: dict[int, _Node] = {}
        self._reports: dict[TargetId, pb.TargetReport] = {}
        #: When a target in the write path was last granted a lease, when any other one last reported.
        self._last_contact: dict[TargetId, float] = {}
        #: Fenced targets, and since when. They are taken for dead and get no lease until the published chain has put
        #: them out (R9): the transaction that does may be on its way, or its outcome unknown.
        self._fenced: dict[TargetId, float] = {}
        #: Targets that have to give way. They get no lease, and leave the chain when their last one has ended.
        self._lease_withheld: dict[ChainId, TargetId] = {}

    def on_heartbeat(
        self,
        node_id: int,
        incarnation: int,
        reports: Sequence[pb.TargetReport],
        routing: Routing,
        routing_version: int = 0,
        release: str = "",
    ) -> tuple[list[TargetId], set[ChainId]]:
        """Take in a heartbeat; returns the targets that it grants leases to, and the chains that it may change."""
        now = self._clock.monotonic()
        self._nodes[node_id] = _Node(
            now, incarnation, reports, routing_version=routing_version, release=release, confirmed=True
        )
        leased: list[TargetId] = []
        changed: set[ChainId] = set()
        for report in reports:
            target = TargetId(report.target_id)
            if target in self._fenced:
                continue
            chain = routing.chains[routing.targets[target].chain_id]
            if self._is_changed(target, report):
                changed.add(chain.chain_id)
            self._reports[target] = report
            self.generations.on_report(report, routing.targets[target].store_id)
            if chain.state(target) not in _IN_WRITE_PATH:
                self._last_contact[target] = now
            elif self._may_hold_lease(report, chain):
                if target not in self._last_contact or any(m.target_id in self._fenced for m in chain.members):
                    changed.add(chain.chain_id)
                self._last_contact[target] = now
                leased.append(target)
                if chain.state(target) is PublicState.SERVING:
                    self.generations.on_lease(report)
        assert self._fenced.keys().isdisjoint(leased), "R9: no lease while a demotion is on its way"
        assert all(routing.targets[target].node_id == node_id for target in leased), (
            "leases are of the node's own targets"
        )
        return leased, changed

    def _may_hold_lease(self, report: pb.TargetReport, chain: Chain) -> bool:
        """Whether this member of the write path, which is not fenced, may be granted a lease for that report."""
        is_withheld = self._lease_withheld.get(chain.chain_id) == report.target_id
        return not is_withheld and report.chain_version == chain.version and report.local_state != pb.LOCAL_OFFLINE

    def on_refused(self, request: pb.HeartbeatRequest, routing: Routing) -> None:
        """Take in that a node lives whose heartbeat was refused, because this manager had not renewed its own lease in
        time (R10). It says no more, and renews no lease: the manager may be primary no longer, without knowing."""
        known, node = self._nodes.get(request.node_id), routing.nodes.get(NodeId(request.node_id))
        if node is None or node.incarnation != request.incarnation or request.leaving:
            return  # it has registered with another manager since, or never; or it ends
        if known is not None:
            if known.dead or known.incarnation != request.incarnation:
                return
            known.heard_at = self._clock.monotonic()
        for report in request.targets:
            target = routing.targets.get(TargetId(report.target_id))
            if target is None or target.node_id != node.node_id or target.target_id in self._fenced:
                continue
            chain = routing.chains[target.chain_id]
            if chain.state(target.target_id) not in _IN_WRITE_PATH or self._may_hold_lease(report, chain):
                self._last_contact[target.target_id] = self._clock.monotonic()

    def on_unreachable(self, node_id: int, peers: Sequence[pb.UnreachablePeer]) -> None:
        """Take in which storage nodes that node, whose heartbeat was just taken in, cannot reach."""
        self._nodes[node_id].unreachable = peers

    def on_process(self, request: pb.HeartbeatRequest) -> None:
        """Take in what that node, whose heartbeat was just taken in, says of its process, its clock and its disk."""
        self.clock_rates.on_heartbeat(request.node_id, request.incarnation, request.clock_ms)
        self.on_unreachable(request.node_id, list(request.unreachable))
        if request.leaving:
            self.mark_dead(request.node_id, request.incarnation)
        if request.HasField("configuration"):
            self._nodes[request.node_id].configuration = request.configuration
        if request.HasField("stray_stores"):
            self._nodes[request.node_id].stray_stores = request.stray_stores

    def unreachable_peers(self, lease_s: float) -> dict[NodeId, dict[NodeId, float]]:
        """By living node, the living nodes that it cannot reach, and for how many seconds."""
        return {
            NodeId(node_id): {
                NodeId(peer.node_id): peer.unreachable_ms / 1000
                for peer in node.unreachable
                if self.is_alive(peer.node_id, lease_s)
            }
            for node_id, node in self._nodes.items()
            if node.unreachable and self.is_alive(node_id, lease_s)
        }

    def _is_changed(self, target: TargetId, report: pb.TargetReport) -> bool:
        before = self._reports.get(target)
        return before is None or (before.local_state, before.chain_version) != (
            report.local_state,
            report.chain_version,
        )

    def on_register(self, node_id: int, incarnation: int, release: str = "") -> None:
        """A node has registered. A repeat of the same registration keeps what the node has reported since."""
        known = self._nodes.get(node_id)
        if known is None or known.incarnation != incarnation:
            self._nodes[node_id] = _Node(self._clock.monotonic(), incarnation, release=release)
            for node in self._nodes.values():  # what others said of its process before says nothing of this one
                node.unreachable = [peer for peer in node.unreachable if peer.node_id != node_id]

    def mark_dead(self, node_id: int, incarnation: int) -> None:
        """This process has ended. A heartbeat of it that comes late does not revive it."""
        known = self._nodes.get(node_id)
        if known is None or known.incarnation != incarnation:
            known = self._nodes[node_id] = _Node(self._clock.monotonic(), incarnation)
        known.dead = True

    def is_marked_dead(self, node_id: int, incarnation: int) -> bool:
        known = self._nodes.get(node_id)
        return known is not None and known.incarnation == incarnation and known.dead

    def fence(self, targets: Iterable[TargetId]) -> None:
        """Take these targets for dead, whatever they report, until `unfence` finds them out of the write path."""
        for target in targets:
            self._fenced.setdefault(target, self._clock.monotonic())
            self.discard_reports([target])

    def discard_reports(self, targets: Iterable[TargetId]) -> None:
        """Forget what these targets have reported."""
        for target in targets:
            self._reports.pop(target, None)
            self._last_contact.pop(target, None)

    def withhold_lease(self, chain: Chain, target: TargetId | None) -> None:
        """Grant this target of the chain no lease from now on. None: every target may have one again."""
        if target is None:
            self._lease_withheld.pop(chain.chain_id, None)
        else:
            self._lease_withheld[chain.chain_id] = target

    def unfence(self, routing: Routing) -> None:
        """Fenced targets that the published chains have put out of the write path may report again."""
        kept: dict[TargetId, float] = {}
        for target, since in self._fenced.items():
            known = routing.targets.get(target)  # none: it was taken out of its chain for good
            if known is not None and routing.chains[known.chain_id].state(target) in _IN_WRITE_PATH:
                kept[target] = since
        self._fenced = kept

    def on_suspension(self) -> None:
        """This process did not run for a while, so the silence of that time says nothing about any node."""
        self._listening_since = self._clock.monotonic()

    def evaluate(self, chain: Chain, routing: Routing, lease_s: float) -> dict[TargetId, LocalState | None]:
        """The word for each member of a chain, for the table of transitions.

        A member that has to leave the write path is fenced here, before the table decides: no lease is granted to it
        from this step on.
        """
        known = {
            member.target_id: self._local_state(member.target_id, chain, routing, lease_s) for member in chain.members
        }
        self.fence(
            member.target_id
            for member in chain.members
            if member.state in _IN_WRITE_PATH and known[member.target_id] is LocalState.OFFLINE
        )
        assert not any(
            member.target_id in self._fenced and member.target_id in self._last_contact for member in chain.members
        ), "R9: a fenced target has no lease"
        for witness in chain.serving:
            if known[witness] is not LocalState.OFFLINE and not self._heard_since_loss(witness, chain):
                known[witness] = None
        return known

    def _heard_since_loss(self, witness: TargetId, chain: Chain) -> bool:
        """Whether a serving target has reported since the others of its chain were lost (R13).

        Before that it may be dead as well. Then the others must not be put out: they may be the only ones that have
        every acknowledged version.
        """
        lost_at = max((self._fenced.get(target, 0.0) for target in chain.serving), default=0.0)
        return self._last_contact.get(witness, 0.0) > lost_at

    def _local_state(self, target: TargetId, chain: Chain, routing: Routing, lease_s: float) -> LocalState | None:
        if target in self._fenced:
            return LocalState.OFFLINE
        report, last_contact = self._reports.get(target), self._last_contact.get(target)
        if report is not None and report.local_state == pb.LOCAL_OFFLINE:
            return LocalState.OFFLINE  # its own report, sent after it had given up its lease
        if self._silence_s(self._listening_since if last_contact is None else last_contact) >= lease_s:
            return LocalState.OFFLINE
        if report is None or last_contact is None:
            return None
        state = chain.state(target)
        if report.chain_version != chain.version:
            # A target that is out comes back only when it knows that it is out. A syncing one that was up to date in
            # another version of the chain may not be so in this one.
            return LocalState.ONLINE if state in _IN_WRITE_PATH else None
        store_id = routing.targets[target].store_id  # 0: it was never in use, so nothing was acknowledged
        if state is PublicState.LASTSRV and store_id and report.store_id != store_id:
            return LocalState.OFFLINE  # its disk is another one: it does not have what was acknowledged
        if state is PublicState.LASTSRV and self.generations.staleness(report):
            return LocalState.OFFLINE  # nor does an older copy of its disk
        return LocalState(report.local_state)

    def could_serve(self, target: TargetId, lease_s: float) -> bool:
        """Whether the target lives and its disk works, whatever is on it."""
        report, last_contact = self._reports.get(target), self._last_contact.get(target)
        if report is None or last_contact is None or target in self._fenced:
            return False
        return report.local_state != pb.LOCAL_OFFLINE and self._silence_s(last_contact) < lease_s

    def has_dropped(self, target: Target, routing_version: int, lease_s: float) -> bool:
        """Whether the node of a removed target keeps nothing of it: it has said so since it knew this routing."""
        node = self._nodes.get(target.node_id)
        if node is None or not node.confirmed or not self.is_alive(target.node_id, lease_s):
            return False
        return node.routing_version >= routing_version and all(r.target_id != target.target_id for r in node.targets)

    def report(self, target: TargetId) -> pb.TargetReport | None:
        """The newest report of this term."""
        return self._reports.get(target)

    def reports_sound(self, target: TargetId) -> bool:
        """Whether the target has said in this term that none of its chunks is damaged or lost."""
        report = self._reports.get(target)
        return report is not None and not (report.unrepaired_chunks or report.lost_chunks)

    def silent_targets(self, lease_s: float) -> list[TargetId]:
        """The targets that have reported in this term, and were silent for T since."""
        now = self._clock.monotonic()
        if now - self._listening_since < lease_s:
            return []
        return [target for target, heard_at in self._last_contact.items() if now - heard_at >= lease_s]

    def is_alive(self, node_id: int, lease_s: float) -> bool:
        heard = self._nodes.get(node_id)
        return heard is not None and not heard.dead and self._silence_s(heard.heard_at) < lease_s

    def reports_failure(self, node_id: int) -> bool:
        """Whether the node has said last that a target of it has failed, or is full."""
        heard = self._nodes.get(node_id)
        return heard is not None and any(report.failure for report in heard.targets)

    def reports_full(self, node_id: int) -> bool:
        """Whether the node has said last that it takes no writes of clients, and nothing worse."""
        heard = self._nodes.get(node_id)
        failed = [report for report in heard.targets if report.failure] if heard is not None else []
        return bool(failed) and all(report.read_only for report in failed)

    def space(self, node_id: int) -> tuple[int, int] | None:
        """What the node has said last that its disk has free, and its capacity; None if it has no target yet, and so
        says nothing."""
        heard = self._nodes.get(node_id)
        if heard is None or not heard.targets:
            return None
        free_bytes = min(int(report.free_bytes) for report in heard.targets)
        return free_bytes, max(int(report.capacity_bytes) for report in heard.targets)

    def incarnation_alive(self, node: Node, lease_s: float) -> bool | None:
        """Whether the process that is registered as this node lives. None: unknown, because it has not reported in this
        term, which has lasted less than T."""
        heard = self._nodes.get(node.node_id)
        if heard is None or heard.incarnation != node.incarnation:
            return None if self._silence_s(self._term_started_at) < lease_s else False
        return heard.confirmed and self.is_alive(node.node_id, lease_s)

    def is_silent(self, node_id: int, lease_s: float) -> bool:
        """Whether the node was silent for T, in a term that has lasted at least T."""
        return not self.is_alive(node_id, lease_s) and self._silence_s(self._term_started_at) >= lease_s

    def _with_finding(self, report: pb.TargetReport, reasons: Mapping[TargetId, str]) -> pb.TargetReport:
        """The report, with what the manager itself has found: the disk is an older copy, or a link has failed."""
        finding = self.generations.staleness(report) or reasons.get(TargetId(report.target_id), "")
        if not finding:
            return report
        annotated = pb.TargetReport()
        annotated.CopyFrom(report)
        annotated.failure = finding
        return annotated

    def _silence_s(self, since: float) -> float:
        """How long this manager has listened since that moment."""
        return self._clock.monotonic() - max(since, self._listening_since)

    def status(self, node: pb.Node, lease_s: float, reasons: Mapping[TargetId, str]) -> pb.NodeStatus:
        """`reasons` says why targets are out of their chains, as far as the manager has put them out for it."""
        heard = self._nodes.get(node.node_id)
        silent_s = self._clock.monotonic() - (heard.heard_at if heard is not None else self._term_started_at)
        return pb.NodeStatus(
            node=node,
            alive=self.is_alive(node.node_id, lease_s),
            silent_ms=int(silent_s * 1000),
            targets=[self._with_finding(report, reasons) for report in heard.targets] if heard is not None else (),
            unreachable=heard.unreachable if heard is not None else (),
            heard=heard is not None,
            ended=heard is not None and heard.dead,
            release=heard.release if heard is not None else "",
            configuration=heard.configuration if heard is not None else None,
            stray_stores=heard.stray_stores if heard is not None else None,
            clock_ppm=self.clock_rates.parts_per_million(node.node_id),
        )
