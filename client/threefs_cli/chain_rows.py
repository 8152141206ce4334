"""Chains as `threefs chain ls` and `show` print them. Pure."""

from typing import Any

from threefs.wire import manager_pb2 as pb
from threefs_cli import output
from threefs_cli.cluster_state import ClusterState


def chain_row(state: ClusterState, chain: pb.Chain) -> dict[str, Any]:
    """One chain, with the node and state of each member, head first."""
    table = state.table_of.get(chain.chain_id, pb.ChainTable())
    serving = sum(member.state == pb.SERVING for member in chain.members)
    minimum = table.min_replicas or 1
    copies = table.replicas or len(chain.members)
    return {
        "chain_id": chain.chain_id,
        "table_id": table.table_id,
        "version": chain.version,
        "copies": copies,
        "serving": serving,
        "min_replicas": minimum,
        "takes_writes": serving >= minimum,
        "degraded": serving < copies,
        "moving": chain.chain_id in state.moving,
        "members": [member_row(state, member) for member in chain.members],
    }


def member_row(state: ClusterState, member: pb.ChainMember) -> dict[str, Any]:
    return {
        "target_id": member.target_id,
        "node_id": state.node_of.get(member.target_id),
        "state": pb.PublicState.Name(member.state).lower(),
        "leaving": member.leaving,
        "out_of_service": member.target_id in state.held,
    }


def member_details(state: ClusterState, member: pb.ChainMember) -> dict[str, Any]:
    """With what the process of the target has reported last."""
    node, report = state.node_status(member.target_id), state.reports.get(member.target_id, pb.TargetReport())
    return member_row(state, member) | {
        "address": node.node.address if node is not None else "",
        "alive": node is not None and node.alive,
        "chain_version": report.chain_version,
        "chunks": report.chunks,
        "used_bytes": report.used_bytes,
        "damaged_chunks": report.unrepaired_chunks,
        "lost_chunks": report.lost_chunks,
        "read_only": report.read_only,
        "failure": report.failure,
        "resync": {"looked_at_chunks": report.synced_chunks, "chunks": report.chunks_to_sync}
        if report.chunks_to_sync
        else None,
    }


def member_text(row: dict[str, Any]) -> str:
    """The state of a member, with what is out of order."""
    said = [row["state"] + (", leaving" if row["leaving"] else "")]
    if row["out_of_service"]:
        said.append("taken out of service (`threefs target online` brings it back)")
    if not row["alive"]:
        said.append("silent")
    if row["resync"]:
        said.append(f"fills its successor: {row['resync']['looked_at_chunks']} of {row['resync']['chunks']} chunks")
    if row["read_only"]:
        said.append("read-only")
    bad = {name: row[f"{name}_chunks"] for name in ("damaged", "lost")}
    said += [f"{output.count_of(count, 'chunk', 'chunks')} {name}" for name, count in bad.items() if count]
    if row["failure"]:
        said.append(row["failure"])
    return "; ".join(said)
