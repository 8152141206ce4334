"""How far the replacement of a disk is, as the manager's answers show it. Pure.

So the command can be run again at any moment, and goes on where it was."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from threefs.wire import manager_pb2 as pb
from threefs_cli import move_rows, output
from threefs_cli.cluster_state import ClusterState


class Phase(enum.Enum):
    IN_SERVICE = "in service"  # nothing has begun, or all is done
    AWAITED = "awaited"  # it is out of service, and the new disk is not there yet
    ARRIVED = "arrived"  # the new disk is there, and its targets are still out of service
    FILLING = "filling"  # the new disk is being filled
    UNFILLED = "unfilled"  # its process does not run, and the disk had not been filled to its end
    SILENT = "silent"  # its process does not run

    @property
    def is_beginning(self) -> bool:
        """Whether the next step is to take the disk out of service."""
        return self in (Phase.IN_SERVICE, Phase.SILENT)


@dataclass(frozen=True, slots=True)
class Disk:
    """The targets of one storage node, of which each has one disk."""

    node_id: int
    targets: tuple[int, ...]
    stores: tuple[int, ...]  # what its targets keep, as the cluster knows it: an empty disk has others
    phase: Phase
    serving: int
    copied_bytes: int
    total_bytes: int
    lacking_bytes: int = 0  # of room for what a new disk has still to take


def look(state: ClusterState, node_id: int) -> Disk:
    members = {
        member.target_id: (member, chain)
        for chain in state.status.chains
        for member in chain.members
        if state.node_of.get(member.target_id) == node_id
    }
    held = [target for target in members if target in state.held]
    serving = [target for target, (member, _) in members.items() if member.state == pb.SERVING]
    copied = [_copied(state, member, chain) for member, chain in members.values()]
    phase = _phase(state, node_id, held, len(serving) == len(members))
    return Disk(
        node_id,
        tuple(sorted(members)),
        tuple(target.store_id for target in state.routing.targets if target.target_id in members),
        phase,
        len(serving),
        sum(done for done, _ in copied),
        sum(total for _, total in copied),
        _lacking(state, members) if phase in (Phase.ARRIVED, Phase.FILLING) else 0,
    )


def _phase(state: ClusterState, node_id: int, held: list[int], whole: bool) -> Phase:
    node = state.nodes.get(node_id)
    alive = node is not None and node.alive
    if not held and not alive and not whole:
        behind = any(report.local_state == pb.LOCAL_ONLINE for report in node.targets) if node is not None else False
        return Phase.UNFILLED if behind else Phase.SILENT
    if not held:
        return Phase.IN_SERVICE if whole else Phase.FILLING
    old = {target.target_id: target.held_store_id for target in state.routing.targets}
    new = [target for target in held if target in state.reports and state.reports[target].store_id != old[target]]
    return Phase.ARRIVED if alive and len(new) == len(held) else Phase.AWAITED


def _lacking(state: ClusterState, members: Mapping[int, tuple[pb.ChainMember, pb.Chain]]) -> int:
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
        elapsed_s = now - self.began_at
        rate = (disk.copied_bytes - self.began_bytes) / elapsed_s if elapsed_s >= 1 else 0
        return move_rows.remaining_s(disk.copied_bytes, disk.total_bytes, round(rate))


def progress_text(disk: Disk, remaining_s: int | None) -> str:
    left = "the end cannot be estimated yet" if remaining_s is None else f"about {move_rows.about(remaining_s)} left"
    return (
        f"{disk.serving} of {output.count_of(len(disk.targets), 'target serves', 'targets serve')}: "
        f"{output.size(disk.copied_bytes)} of {output.size(disk.total_bytes)} copied, {left}"
    )


def lacking_text(disk: Disk) -> str:
    return (
        f"; its disk lacks {output.size(disk.lacking_bytes)} for what is still to be copied: remove files, or stop its "
        "process, make its disk larger, and start it"
    )


def plan_text(disk: Disk, chains: Iterable[pb.HeldChain], address: str) -> list[str]:
    """The steps that will be taken, one a line."""
    least = min(chains, key=lambda chain: chain.serving - chain.needed, default=None)
    copies = f"; chain {least.chain_id} has {least.serving} of {least.members} copies then" if least is not None else ""
    return [
        f"1. the {output.count_of(len(disk.targets), 'target', 'targets')} of node {disk.node_id} at {address or '-'} "
        f"leave their chains{copies}",
        "2. you stop its process, put an empty disk (or an empty directory) with room for at least "
        f"{output.size(disk.total_bytes)} at its `data_dir`, and start it again",
        f"3. {output.size(disk.total_bytes)} are copied to it from the other copies, and it serves again",
    ]
