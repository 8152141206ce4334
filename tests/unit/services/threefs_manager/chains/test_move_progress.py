"""How fast a target is filled is counted from the moment when this primary has seen it begin."""

from threefs_manager.chains.move_progress import MoveProgress
from threefs_manager.chains.moves import Move

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, PublicState, Routing
from threefs.wire import manager_pb2 as pb

MOVE = Move(ChainId(1), TargetId(9), NodeId(4), TargetId(1))


def routing(state: PublicState) -> Routing:
    members = (ChainMember(TargetId(1), PublicState.SERVING), ChainMember(TargetId(9), state))
    chains = {ChainId(1): Chain(ChainId(1), 2, members)}
    return Routing(1, "", EMPTY.nodes, EMPTY.targets, chains, EMPTY.tables)


class Bench:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.progress = MoveProgress(self.clock)
        self.used = {TargetId(1): 1000, TargetId(9): 100}

    def report(self, target: TargetId) -> pb.TargetReport | None:
        used = self.used.get(target)
        return None if used is None else pb.TargetReport(target_id=target, used_bytes=used)

    def observe(self, state: PublicState) -> None:
        self.progress.observe([MOVE], routing(state), self.report)

    def row(self, state: PublicState = PublicState.SYNCING) -> tuple[int, int, int]:
        (found,) = self.progress.rows([MOVE], routing(state), self.report)
        return found.copied_bytes, found.total_bytes, found.bytes_per_s


def test_the_rate_is_that_of_what_was_copied_since_the_beginning() -> None:
    bench = Bench()
    bench.observe(PublicState.WAITING)
    bench.clock.advance(50)
    bench.observe(PublicState.SYNCING)
    assert bench.row() == (100, 1000, 0), "nothing is known yet"
    bench.used[TargetId(9)] = 300
    bench.clock.advance(4)
    bench.observe(PublicState.SYNCING)
    assert bench.row() == (300, 1000, 50)
    bench.observe(PublicState.WAITING)
    bench.observe(PublicState.SYNCING)
    assert bench.row() == (300, 1000, 0), "another resync counts anew"
    bench.used[TargetId(9)] = 1001
    assert bench.row()[0] == 1000, "a target that has served a while may be larger"


def test_a_move_of_which_nothing_was_reported_says_what_there_is_to_copy() -> None:
    bench = Bench()
    del bench.used[TargetId(9)]
    assert bench.row(PublicState.OFFLINE) == (0, 1000, 0)
    del bench.used[TargetId(1)]
    assert not list(bench.progress.rows([MOVE], routing(PublicState.OFFLINE), bench.report))
    assert not list(
        bench.progress.rows([Move(ChainId(1), removed=TargetId(1))], routing(PublicState.SERVING), bench.report)
    )
