"""Moves as `threefs moves` prints them. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_state import ClusterState

_UNITS_S = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def move_rows(state: ClusterState) -> list[dict[str, Any]]:
    """One row per move, in the order of the chains."""
    progress = {row.chain_id: row for row in state.status.move_progress}
    chains = {chain.chain_id: chain for chain in state.status.chains}
    moves = sorted(state.status.moves, key=lambda move: move.chain_id)
    return [_row(state, move, chains.get(move.chain_id), progress.get(move.chain_id)) for move in moves]


def _row(
    state: ClusterState, move: pb.Move, chain: pb.Chain | None, progress: pb.MoveProgress | None
) -> dict[str, Any]:
    members = {member.target_id: member for member in chain.members} if chain is not None else {}
    found = progress or pb.MoveProgress()
    stage = _stage(move, members)
    serves = move.added_target in members and members[move.added_target].state == pb.SERVING
    copied = found.total_bytes if serves else found.copied_bytes
    return {
        "chain_id": move.chain_id,
        "added_target": move.added_target or None,
        "added_node": move.added_node or None,
        "removed_target": move.removed_target or None,
        "removed_node": state.node_of.get(move.removed_target),
        "stage": stage,
        "copied_bytes": copied,
        "total_bytes": found.total_bytes,
        "bytes_per_s": found.bytes_per_s,
        "remaining_s": remaining_s(copied, found.total_bytes, found.bytes_per_s),
    }


def _stage(move: pb.Move, members: Mapping[int, pb.ChainMember]) -> str:
    """ "queued", "waiting" (for its process, another resync of the chain, or a member that is held), "filling" or
    "leaving"."""
    added, removed = members.get(move.added_target), members.get(move.removed_target)
    if move.added_target and added is None:
        return "queued"
    if added is not None and added.state != pb.SERVING:
        return "filling" if added.state == pb.SYNCING else "waiting"
    if removed is not None and not removed.leaving:
        return "waiting" if added is not None else "queued"
    return "leaving" if added is not None or removed is not None else "queued"


def summary(state: ClusterState, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all moves together. The estimate takes the rate of those that are being filled now."""
    copied, total = (sum(row[name] for row in rows) for name in ("copied_bytes", "total_bytes"))
    rate = sum(row["bytes_per_s"] for row in rows if row["stage"] == "filling")
    queued = sum(row["stage"] == "queued" for row in rows)
    to_leave = sum(row["stage"] == "leaving" or (row["stage"] == "waiting" and _is_copied(row)) for row in rows)
    return {
        "under_way": len(rows) - queued,
        "queued": queued,
        "to_leave": to_leave,
        "more_follow": state.status.more_moves,
        "rebalance_awaits": list(state.status.rebalance_awaits),
        "copied_bytes": copied,
        "total_bytes": total,
        "bytes_per_s": rate,
        "remaining_s": remaining_s(copied, total, rate) if rows else 0,
    }


def _is_copied(row: Mapping[str, Any]) -> bool:
    return bool(row["total_bytes"]) and row["copied_bytes"] >= row["total_bytes"]


def remaining_s(copied_bytes: int, total_bytes: int, bytes_per_s: int) -> int | None:
    """None: it cannot be told yet. What there is to do when all is copied has no rate, and may wait for others."""
    if copied_bytes >= total_bytes:
        return None
    return math.ceil((total_bytes - copied_bytes) / bytes_per_s) if bytes_per_s else None


def summary_text(found: Mapping[str, Any]) -> str:
    """One line."""
    if not (found["under_way"] or found["queued"]):
        return _idle_text(found)
    said = f"{output.count_of(found['under_way'], 'move', 'moves')} under way, {found['queued']} queued: "
    if found["to_leave"] == found["under_way"] + found["queued"]:
        said += f"all is copied, and {output.count_of(found['to_leave'], 'target waits', 'targets wait')} to leave"
    else:
        said += _progress_text(found)
    return said + ("; more moves follow" if found["more_follow"] else "")


def _idle_text(found: Mapping[str, Any]) -> str:
    if found["more_follow"]:
        return "nothing moves now; more moves are being planned"
    if not (awaited := found["rebalance_awaits"]):
        return "nothing moves"
    nodes = f"{'node' if len(awaited) == 1 else 'nodes'} {', '.join(map(str, awaited))}"
    return f"nothing moves now; the rebalance goes on when the targets of {nodes} are in service again"


def _progress_text(found: Mapping[str, Any]) -> str:
    left, rate = found["remaining_s"], found["bytes_per_s"]
    said = f"{output.size(found['copied_bytes'])} of {output.size(found['total_bytes'])} copied"
    said += f", {output.size(rate)}/s" if rate else ""
    return said + (", the end cannot be estimated yet" if left is None else f", about {about(left)} left")


def about(seconds: int) -> str:
    """For people: "40 s", "3 min", "2 h"; in the largest unit of which there are two."""
    unit, size = next(((unit, size) for unit, size in _UNITS_S if seconds >= 2 * size), ("s", 1))
    return f"{round(seconds / size)} {unit}{'s' if unit == 'day' else ''}"
