from threefs_manager.membership import Membership

from tests.support.clocks import SteppedClock
from threefs.wire import manager_pb2 as pb

NODE = pb.Node(node_id=1, kind=pb.STORAGE, address="a:1")


def test_a_node_is_alive_from_its_heartbeat_until_it_was_silent_for_the_limit() -> None:
    clock = SteppedClock()
    membership = Membership(clock, silent_after_s=10.0)
    report = pb.TargetReport(target_id=101, used_bytes=5)
    membership.hear(1, 7, [report])
    clock.advance(9.5)
    status = membership.status(NODE)
    assert (status.alive, status.silent_ms, list(status.targets)) == (True, 9500, [report])
    clock.advance(0.5)
    status = membership.status(NODE)
    assert (status.alive, status.silent_ms) == (False, 10_000)
    assert list(status.targets) == [report], "what it said last is still worth to know"
    membership.hear(1, 7, [])
    assert membership.status(NODE).alive


def test_who_was_never_heard_of_is_silent_since_the_manager_began() -> None:
    clock = SteppedClock()
    membership = Membership(clock, silent_after_s=10.0)
    clock.advance(3.0)
    status = membership.status(NODE)
    assert (status.alive, status.silent_ms, status.node) == (False, 3000, NODE)
