"""Status and routing may be of two moments."""

import pytest
from threefs_cli.cluster_state import ClusterState

from threefs.errors import NotFound
from threefs.wire import manager_pb2 as pb


def test_what_only_one_of_the_two_answers_names_is_no_error() -> None:
    status = pb.GetStatusReply(
        nodes=[pb.NodeStatus(node=pb.Node(node_id=1), targets=[pb.TargetReport(target_id=101, chunks=3)])],
        chains=[pb.Chain(chain_id=4)],
        tables=[pb.ChainTable(table_id=2, chains=[4])],
        moves=[pb.Move(chain_id=4)],
    )
    routing = pb.Routing(targets=[pb.Target(target_id=101, node_id=1), pb.Target(target_id=201, node_id=2)])
    state = ClusterState(status, routing)
    known = state.node_status(101)
    assert known is not None and known.node.node_id == 1
    assert state.node_status(201) is None and state.node_status(999) is None
    assert state.reports[101].chunks == 3 and state.table_of[4].table_id == 2 and state.moving == {4}
    assert state.chain(4).chain_id == 4
    with pytest.raises(NotFound):
        state.chain(5)
