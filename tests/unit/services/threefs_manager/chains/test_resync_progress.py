"""A resync that stands still is noticed."""

from threefs_manager.chains.resync_progress import STALLED_LEASES, ResyncProgress

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState
from threefs.wire import manager_pb2 as pb

LEASE_S = 2.0
ENOUGH_S = STALLED_LEASES * LEASE_S


SERVING, SYNCING, WAITING, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING, PublicState.OFFLINE
ONLINE, UPTODATE, DEAD = LocalState.ONLINE, LocalState.UPTODATE, LocalState.OFFLINE


def chain(version: int, *states: PublicState) -> Chain:
    members = (ChainMember(TargetId(n), state) for n, state in enumerate(states, 1))
    return Chain(ChainId(1), version, tuple(members))


class Bench:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.progress = ResyncProgress(self.clock)

    def stalled_target(
        self,
        done: int | None,
        version: int = 1,
        states: tuple[PublicState, ...] = (SERVING, SYNCING, WAITING),
        locals_: tuple[LocalState | None, ...] = (UPTODATE, ONLINE, ONLINE),
    ) -> int | None:
        report = None if done is None else pb.TargetReport(target_id=1, sync_progress=done)
        observed = {TargetId(n): local for n, local in enumerate(locals_, 1)}
        return self.progress.stalled_target(chain(version, *states), observed, report, LEASE_S)


def test_it_gives_way_when_nothing_happens_for_long_enough() -> None:
    bench = Bench()
    assert not bench.stalled_target(None)
    bench.clock.advance(ENOUGH_S - 0.1)
    assert not bench.stalled_target(None)
    assert not bench.stalled_target(7), "something has happened"
    bench.clock.advance(ENOUGH_S - 0.1)
    assert not bench.stalled_target(7)
    bench.clock.advance(0.2)
    assert bench.stalled_target(7) == 2
    assert not bench.stalled_target(7, version=2), "another resync begins"
    bench.clock.advance(ENOUGH_S)
    assert bench.stalled_target(7, version=2) == 2
    assert bench.stalled_target(7, version=2, states=(SERVING, SYNCING, OFFLINE)) == 2, "one that is back will wait"


def test_it_stays_while_no_other_one_can_be_brought_up_to_date() -> None:
    bench = Bench()
    bench.stalled_target(7)
    bench.clock.advance(ENOUGH_S)
    assert not bench.stalled_target(7, states=(SERVING, SYNCING))
    assert not bench.stalled_target(7, locals_=(UPTODATE, ONLINE, DEAD))
    assert not bench.stalled_target(7, locals_=(UPTODATE, ONLINE, None))
    assert not bench.stalled_target(7, locals_=(UPTODATE, UPTODATE, ONLINE)), "it is about to serve"


def test_only_what_syncs_can_stall() -> None:
    bench = Bench()
    for _ in range(3):
        assert not bench.stalled_target(None, states=(SERVING, WAITING, WAITING))
        bench.clock.advance(ENOUGH_S)
    assert not bench.stalled_target(None), "the time counts from when it is seen to sync"
