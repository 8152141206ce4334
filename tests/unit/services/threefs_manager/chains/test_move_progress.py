"""How fast a target is filled is counted from the moment when this primary has seen it begin."""

from threefs_manager.chains.move_progress import MoveProgress, lasting
from threefs_manager.chains.moves import Move

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import EMPTY, Chain, ChainMember, PublicState, Routing
from threefs.wire import manager_pb2 as pb

MOVE = Move(ChainId(1), TargetId(9), NodeId(4), TargetId(1))


def routing(state: PublicState) -> Routing:
    members = (ChainMember(TargetId(1), PublicState.SERVING), ChainMember(TargetId(9), state))
    chains = {ChainId(1): Chain(ChainId(1), 2, members)}
    return Routing(1, "", EMPTY.nodes, EMPTY.targets, chains, EMPTY.tables, lease_ms=10_000)


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


def test_a_resync_is_stalled_while_it_is_seen_to_do_nothing() -> None:
    bench = Bench()
    for _ in range(5):
        bench.observe(PublicState.SYNCING)
        bench.clock.advance(9)
    assert bench.progress.stalled_s(TargetId(9)) == 45
    bench.clock.advance(2)
    bench.observe(PublicState.SYNCING)
    assert bench.progress.stalled_s(TargetId(9)) == 0, "nobody has looked for T"


def test_what_is_not_found_for_a_while_begins_anew() -> None:
    first = lasting({}, [1, 2], now=5, gap_s=10)
    second = lasting(first, [1], now=14, gap_s=10)
    assert second == {1: (5, 14), 2: (5, 5)}
    assert lasting(second, [1, 2], now=23, gap_s=10) == {1: (5, 23), 2: (23, 23)}


def test_a_move_of_which_nothing_was_reported_says_what_there_is_to_copy() -> None:
    bench = Bench()
    del bench.used[TargetId(9)]
    assert bench.row(PublicState.OFFLINE) == (0, 1000, 0)
    del bench.used[TargetId(1)]
    assert not list(bench.progress.rows([MOVE], routing(PublicState.OFFLINE), bench.report))
    assert not list(
        bench.progress.rows([Move(ChainId(1), removed=TargetId(1))], routing(PublicState.SERVING), bench.report)
    )
