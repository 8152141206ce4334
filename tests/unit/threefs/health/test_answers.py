from tests.harness.cluster_status import routing_of, sound
from threefs.health.answers import Answers, listed, node_name
from threefs.wire import manager_pb2 as pb


def test_targets_are_named_with_their_node() -> None:
    status = sound()
    answers = Answers(status, routing_of(status))
    assert answers.node_of(202) == 2 and answers.target_name(202) == "target 202 of node 2"
    assert answers.node_of(999) == 0 and answers.target_name(999) == "target 999"


def test_reports_of_silent_nodes_do_not_count() -> None:
    status = sound()
    status.nodes[1].alive = False
    answers = Answers(status, routing_of(status))
    assert {row.node.node_id for row, _ in answers.reports()} == {1, 3}


def test_names_for_people() -> None:
    assert node_name(pb.Node(node_id=3, kind=pb.META)) == "meta service 3"
    assert node_name(pb.Node(node_id=3, address="h:1", domain="r")) == "storage node 3 (h:1, domain r)"
    assert listed(["a", "b"]) == "a, b"
    assert listed(str(n) for n in range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
