import pytest
from threefs_manager.placement.plan import (
    Disk,
    check_plan,
    digest,
    normalized,
)

from threefs.errors import InvalidArgument
from threefs.ids import NodeId
from threefs.wire import manager_pb2 as pb


@pytest.mark.parametrize(
    ("domains", "replicas", "per_disk", "text"),
    [
        ("ab", 3, 3, "3 replicas need 3 storage nodes; the plan has 2"),
        ("", 1, 1, "the plan has 0"),
        ("abcd", 3, 2, "8 targets, which is no multiple of 3 replicas; make targets per disk a multiple of 3"),
        ("abcdef", 4, 1, "multiple of 2"),
        ("abc", 0, 1, "replicas must be 1 to 16, not 0"),
        ("abc", 17, 1, "replicas must be 1 to 16, not 17"),
        ("abc", 3, 0, "targets per disk must be 1 to 99, not 0"),
        ("abc", 3, 100, "targets per disk must be 1 to 99, not 100"),
        (
            "a" * 300,
            3,
            99,
            "29700 targets, and with nodes and chains it makes 39602 records; at most 8000 can be stored at once",
        ),
    ],
)
def test_a_bad_plan_is_explained(domains: str, replicas: int, per_disk: int, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_plan([Disk(NodeId(n), domain) for n, domain in enumerate(domains, start=1)], replicas, per_disk)


def test_nodes_that_are_stored_with_the_plan_count() -> None:
    disks = [Disk(NodeId(number), "a") for number in range(1, 2881)]
    check_plan(disks, 3, 2)
    check_plan(disks, 3, 1, new_nodes=2880)
    with pytest.raises(InvalidArgument, match="10562 records; at most 8000"):
        check_plan(disks, 3, 2, new_nodes=2880)


@pytest.mark.parametrize(
    ("ids", "text"), [((1, 2, 1), "node 1 is in the plan 2 times"), ((0, 1, 2), "not 0"), ((1, 2, 1_000_000), "999999")]
)
def test_bad_node_ids_are_named(ids: tuple[int, ...], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_plan([Disk(NodeId(n), str(n)) for n in ids], 1, 1)


def test_plans_that_say_the_same_are_equal() -> None:
    one, two = pb.PlannedNode(node_id=1), pb.PlannedNode(node_id=2, domain="a")
    plan = normalized(pb.InitRequest(storage=[two, one], replicas=2, targets_per_disk=1))
    assert [(node.node_id, node.domain) for node in plan.storage] == [(1, "node-1"), (2, "a")]
    assert normalized(plan) == plan
    other = normalized(pb.InitRequest(storage=[one, two], replicas=1, targets_per_disk=1))
    assert digest(plan) != digest(other)


def test_the_digest_of_a_plan_never_changes() -> None:
    """It is stored, and compared by later versions."""
    plan = normalized(pb.InitRequest(storage=[pb.PlannedNode(node_id=1, domain="a")], replicas=1, targets_per_disk=2))
    assert digest(plan).hex() == "dcefcba8859effe4c645dccff6db41c7fe5bcc398820e02183d1b6d02e06be59"


def test_the_name_of_a_domain_is_bounded() -> None:
    nodes = [pb.PlannedNode(node_id=1, domain="x" * 256)]
    with pytest.raises(InvalidArgument, match="node 1 has 256 characters; at most 255 are allowed"):
        normalized(pb.InitRequest(storage=nodes, replicas=1, targets_per_disk=1))
