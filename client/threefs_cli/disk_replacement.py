"""How far the replacement of a disk is, as the manager's answers show it. Pure.

So the command can be run again at any moment, and goes on where it was."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from threefs.wire import manager_pb2 as pb
from threefs_cli import move_rows, output
from threefs_cli.cluster_state import ClusterState

Members = Mapping[int, tuple[pb.ChainMember, pb.Chain]]

#: The states of targets that clients use, or that have what no other one may have.
_NEEDED = (pb.SERVING, pb.SYNCING, pb.LASTSRV)


class Phase(enum.Enum):
    IN_SERVICE = "in service"  # nothing has begun, or all is done
    FAILED = "failed"  # its process runs, and says that the disk has failed
    PARTIAL = "partial"  # some of its targets are out of service
    NEEDED = "needed"  # all are to go out of service, and chains need it still
    AWAITED = "awaited"  # it is out of service, and the new disk is not there yet
    ARRIVED = "arrived"  # the new disk is there, and its targets are still out of service
    FILLING = "filling"  # the new disk is being filled
    REFILLING = "refilling"  # so is an empty store that has taken the place of a damaged one, on the disk that is there
    UNFILLED = "unfilled"  # its process does not run, and the disk had not been filled to its end
    SILENT = "silent"  # its process does not run

    @property
    def is_beginning(self) -> bool:
        """Whether the next step is to take the disk out of service."""
        return self in (Phase.IN_SERVICE, Phase.FAILED, Phase.PARTIAL, Phase.REFILLING, Phase.SILENT)


@dataclass(frozen=True, slots=True)
class Disk:
    """The targets of one storage node, of which each has one disk."""

    node_id: int
    targets: tuple[int, ...]
    stores: Mapping[int, int]  # what its targets keep, as the cluster knows it: an empty disk has others
    phase: Phase
    serving: int
    copied_bytes: int
    total_bytes: int
    lacking_bytes: int = 0  # of room for what a new disk has still to take
    replacements: frozenset[int] = frozenset()  # targets whose stores have taken the place of damaged ones on this disk

    def is_new_since(self, before: "Disk") -> bool:
        """Whether an empty disk has come in its place. Moves may have changed its targets as well, and damage its
        stores."""
        return any(
            before.stores.get(target, store) != store
            for target, store in self.stores.items()
            if target not in self.replacements
        )


def look(state: ClusterState, node_id: int) -> Disk:
    members = {
        member.target_id: (member, chain)
        for chain in state.status.chains
        for member in chain.members
        if state.node_of.get(member.target_id) == node_id
    }
    own = {target: found for target, found in members.items() if _is_own(state, found[0])}
    copied = [_copied(state, member, chain) for member, chain in own.values()]
    phase = _phase(state, node_id, members, own)
    known = (target for target in state.routing.targets if target.target_id in members)
    return Disk(
        node_id,
        tuple(sorted(members)),
        {target.target_id: target.store_id for target in known if target.store_id},
        phase,
        sum(member.state == pb.SERVING for member, _ in own.values()),
        sum(done for done, _ in copied),
        sum(total for _, total in copied),
        _lacking(state, own) if phase in (Phase.ARRIVED, Phase.FILLING, Phase.REFILLING) else 0,
        frozenset(target for target in members if _replaces_damaged(state, target)),
    )


def _is_own(state: ClusterState, member: pb.ChainMember) -> bool:
    """Whether the disk is to be filled with it: not one that a move fills, or takes away."""
    added = {move.added_target for move in state.status.moves}
    return member.state == pb.SERVING or not (member.leaving or member.target_id in added)


def _phase(state: ClusterState, node_id: int, members: Members, own: Members) -> Phase:
    held = [target for target in members if target in state.held]
    if held:
        return _phase_of_held(state, node_id, members) if len(held) == len(members) else Phase.PARTIAL
    away = [target for target, (member, _) in own.items() if member.state != pb.SERVING]
    if not away:
        return Phase.IN_SERVICE
    node = state.nodes.get(node_id, pb.NodeStatus())
    is_refilled = any(_replaces_damaged(state, target) for target in away)  # it may be the disk that is to be replaced
    if not node.alive:
        behind = any(report.local_state == pb.LOCAL_ONLINE for report in node.targets)
        return Phase.UNFILLED if behind and not is_refilled else Phase.SILENT
    if any(_has_failed(state.reports.get(target)) for target in away):
        return Phase.FAILED
    return Phase.REFILLING if is_refilled else Phase.FILLING


def _replaces_damaged(state: ClusterState, target: int) -> bool:
    report = state.reports.get(target)
    return report is not None and report.replaces_damaged


def _phase_of_held(state: ClusterState, node_id: int, members: Members) -> Phase:
    if any(member.state in _NEEDED for member, _ in members.values()):
        return Phase.NEEDED
    old = {target.target_id: target.held_store_id for target in state.routing.targets}
    found = [state.reports[target] for target in members if target in state.reports]
    new = [report.target_id for report in found if _is_new(report, old[report.target_id])]
    alive = state.nodes.get(node_id, pb.NodeStatus()).alive
    return Phase.ARRIVED if alive and len(new) == len(members) else Phase.AWAITED


def _is_new(report: pb.TargetReport, old: int) -> bool:
    """Whether the store is on another disk than the old one. The hold may know only the one that a damaged one was, and
    not yet the empty one that has replaced it on the old disk."""
    return report.store_id not in (0, old) and not report.replaces_damaged  # 0: it cannot be opened


def _has_failed(report: pb.TargetReport | None) -> bool:
    """Whether a target has left its chain because its disk has failed, and is not only full."""
    if report is None or report.read_only:
        return False
    return report.local_state == pb.LOCAL_OFFLINE and bool(report.failure)


def _lacking(state: ClusterState, members: Members) -> int:
    """How many bytes more the targets will have than there is room for on their disk."""
    reports = [state.reports[target] for target in members if target in state.reports]
    if len(reports) < len(members):
        return 0  # it is not known what is there
    missing = [
        max(0, _content_bytes(state, chain) - report.used_bytes)
        for report, (member, chain) in zip(reports, members.values(), strict=True)
        if member.state != pb.SERVING
    ]
    return max(0, sum(missing) - max((report.free_bytes for report in reports), default=0))


def _content_bytes(state: ClusterState, chain: pb.Chain) -> int:
    tail = next((one.target_id for one in reversed(chain.members) if one.state == pb.SERVING), 0)
    return state.reports.get(tail, pb.TargetReport()).used_bytes


def _copied(state: ClusterState, member: pb.ChainMember, chain: pb.Chain) -> tuple[int, int]:
    """The bytes that a target has, and those that it will have."""
    total = _content_bytes(state, chain)
    if member.state == pb.SERVING:
        return total, total
    if member.state != pb.SYNCING:
        return 0, total
    return min(total, state.reports.get(member.target_id, pb.TargetReport()).used_bytes), total


@dataclass(slots=True)
class Progress:
    """The rate since the filling was seen to begin."""

    began_at: float
    began_bytes: int

    def remaining_s(self, disk: Disk, now: float) -> int | None:
        if disk.phase is Phase.IN_SERVICE:
            return 0
        elapsed_s = now - self.began_at
        rate = (disk.copied_bytes - self.began_bytes) / elapsed_s if elapsed_s >= 1 else 0
        return move_rows.remaining_s(disk.copied_bytes, disk.total_bytes, round(rate))


def progress_text(disk: Disk, remaining_s: int | None) -> str:
    left = "the end cannot be estimated yet" if remaining_s is None else f"about {move_rows.about(remaining_s)} left"
    return (
        f"{disk.serving} of {output.count_of(len(disk.targets), 'target serves', 'targets serve')}: "
        f"{output.size(disk.copied_bytes)} of {output.size(disk.total_bytes)} copied, {left}"
    )


def refilling_text(node_id: int) -> str:
    return f"an empty store that has taken the place of a damaged one is filled, on the disk that node {node_id} has"


def lacking_text(disk: Disk) -> str:
    return (
        f"; its disk lacks {output.size(disk.lacking_bytes)} for what is still to be copied: remove files, or stop its "
        "process, make its disk larger, and start it"
    )


def plan_text(disk: Disk, chains: Iterable[pb.HeldChain], address: str) -> list[str]:
    """The steps that will be taken, one a line, behind what the disk is doing."""
    least = min(chains, key=lambda chain: chain.serving - chain.needed, default=None)
    copies = f"; chain {least.chain_id} has {least.serving} of {least.members} copies then" if least is not None else ""
    found = [f"now {refilling_text(disk.node_id)}"] if disk.phase is Phase.REFILLING else []
    return [
        *found,
        f"1. the {output.count_of(len(disk.targets), 'target', 'targets')} of node {disk.node_id} at {address or '-'} "
        f"leave their chains{copies}",
        "2. you stop its process, put an empty disk (or an empty directory) with room for at least "
        f"{output.size(disk.total_bytes)} at its `data_dir`, and start it again",
        f"3. {output.size(disk.total_bytes)} are copied to it from the other copies, and it serves again",
    ]
