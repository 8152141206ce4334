"""Chains as commands print them."""

import pytest
from threefs_cli.chain_rows import chain_row, member_details, member_text
from threefs_cli.cluster_state import ClusterState

from threefs.errors import NotFound
from threefs.wire import manager_pb2 as pb


def state() -> ClusterState:
    members = [
        pb.ChainMember(target_id=101, state=pb.SERVING),
        pb.ChainMember(target_id=201, state=pb.SYNCING),
        pb.ChainMember(target_id=301, state=pb.OFFLINE, leaving=True),
    ]
    nodes = [
        pb.NodeStatus(
            node=pb.Node(node_id=node, kind=pb.STORAGE, address=f"h:{node}"),
            alive=node != 3,
            targets=[report],
        )
        for node, report in (
            (1, pb.TargetReport(target_id=101, chunks=9, synced_chunks=3, chunks_to_sync=9, unrepaired_chunks=1)),
            (2, pb.TargetReport(target_id=201, read_only=True)),
            (3, pb.TargetReport(target_id=301, failure="the disk failed", lost_chunks=2)),
        )
    ]
    status = pb.GetStatusReply(
        nodes=nodes,
        chains=[pb.Chain(chain_id=1, version=7, members=members)],
        tables=[pb.ChainTable(table_id=1, chains=[1], min_replicas=2, replicas=3)],
    )
    return ClusterState(status, pb.Routing(targets=[pb.Target(target_id=n * 100 + 1, node_id=n) for n in (1, 2, 3)]))


def test_a_chain_says_whether_it_is_whole_and_takes_writes() -> None:
    found = state()
    row = chain_row(found, found.chain(1))
    assert (row["serving"], row["copies"], row["degraded"], row["takes_writes"]) == (1, 3, True, False)
    assert [(m["target_id"], m["node_id"], m["state"]) for m in row["members"]] == [
        (101, 1, "serving"),
        (201, 2, "syncing"),
        (301, 3, "offline"),
    ]
    with pytest.raises(NotFound, match="no chain 2"):
        found.chain(2)


def test_a_member_says_what_is_out_of_order() -> None:
    found = state()
    texts = [member_text(member_details(found, member)) for member in found.chain(1).members]
    assert texts == [
        "serving; fills its successor: 3 of 9 chunks; 1 chunk damaged",
        "syncing; read-only",
        "offline, leaving; silent; 2 chunks lost; the disk failed",
    ]
