import asyncio
import contextlib

import pytest
from threefs_storage.scheduling.background_pace import LONGEST_BURST_S, PARALLEL, Foreground, PaceLimits
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work

from tests.harness.clocks import SteppedClock
from threefs.env.clock import CLOCK


class Clients:
    """Calls of clients, as many as the test says."""

    def __init__(self, in_flight: int = 0) -> None:
        self.in_flight = in_flight

    def __call__(self) -> Foreground:
        return Foreground(self.in_flight, CLOCK.monotonic() if self.in_flight else float("-inf"))


async def test_alone_pieces_run_side_by_side_up_to_a_bound() -> None:
    scheduler = BackgroundScheduler(clock=CLOCK)
    running = most = 0

    async def piece() -> None:
        nonlocal running, most
        async with scheduler.turn(Work.RESYNC, 1 << 20):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(piece() for _ in range(3 * PARALLEL)))
    assert most == PARALLEL
    counters = scheduler.counters[Work.RESYNC]
    assert (counters.pieces, counters.bytes) == (3 * PARALLEL, 3 * PARALLEL << 20)


async def test_it_goes_on_while_clients_are_served_all_the_time() -> None:
    scheduler = BackgroundScheduler(Clients(8), PaceLimits(min_bytes_per_s=64 << 20), clock=CLOCK)
    running = 0

    async def piece() -> None:
        nonlocal running
        async with scheduler.turn(Work.FOLD, 1 << 20):
            running += 1
            assert running == 1, "large pieces do not run side by side while clients are served"
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(piece() for _ in range(5)))
    assert scheduler.counters[Work.FOLD].waited_seconds > 0


async def test_a_piece_that_waits_begins_when_the_clients_have_left() -> None:
    clients = Clients(1)
    scheduler = BackgroundScheduler(clients, PaceLimits(min_bytes_per_s=1 << 10), clock=CLOCK)
    async with scheduler.turn(Work.RESYNC, 100 << 20):
        await asyncio.sleep(0.01)
    clients.in_flight = 0
    async with asyncio.timeout(30), scheduler.turn(Work.RESYNC, 1):
        pass


async def test_a_cancelled_piece_leaves_its_place_to_others() -> None:
    scheduler = BackgroundScheduler(Clients(1), PaceLimits(min_bytes_per_s=64 << 20), clock=CLOCK)

    async def piece() -> None:
        async with scheduler.turn(Work.SCRUB, 1 << 20):
            await asyncio.sleep(0)

    for steps in range(8):
        tasks = [asyncio.create_task(piece()) for _ in range(4)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
    async with asyncio.timeout(30), scheduler.turn(Work.SCRUB, 1):
        pass


async def test_a_piece_that_is_cancelled_when_its_turn_comes_gives_it_back() -> None:
    scheduler = BackgroundScheduler(clock=CLOCK)

    async def piece() -> None:
        async with scheduler.turn(Work.REPAIR, 1):
            raise AssertionError("it was cancelled before it could begin")

    running = [scheduler.turn(Work.RESYNC, 1) for _ in range(PARALLEL)]
    for turn in running:
        await turn.__aenter__()
    waiting = asyncio.create_task(piece())
    await asyncio.sleep(0)
    await running.pop().__aexit__(None, None, None)  # its turn comes ...
    waiting.cancel()  # ... and it has not heard of it yet
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(10), scheduler.turn(Work.REPAIR, 1):
        pass
    for turn in running:
        await turn.__aexit__(None, None, None)


async def test_pieces_for_peers_do_not_wait_for_the_own_ones() -> None:
    """Two processes that send chunks to each other: each holds a turn until the other has taken its chunk."""
    one, other = (BackgroundScheduler(Clients(4), clock=CLOCK) for _ in range(2))

    async def send(sender: BackgroundScheduler, receiver: BackgroundScheduler) -> None:
        async with sender.turn(Work.RESYNC, 1 << 20):
            await asyncio.sleep(0)
            async with receiver.turn(Work.FOR_PEERS, 1 << 20):
                pass

    async with asyncio.timeout(30):
        await asyncio.gather(send(one, other), send(other, one))
    assert all(each.counters[Work.FOR_PEERS].waited_seconds < LONGEST_BURST_S for each in (one, other))


async def test_a_peer_waits_no_longer_than_its_call_can() -> None:
    scheduler = BackgroundScheduler(Clients(1), PaceLimits(min_bytes_per_s=1), clock=CLOCK)
    first = scheduler.turn(Work.FOR_PEERS, 1 << 20)  # the next one would have to wait for ten seconds
    async with first, asyncio.timeout(5), scheduler.turn(Work.FOR_PEERS, 1 << 20, 0.01):
        pass


async def test_a_piece_that_hangs_does_not_hold_up_the_others() -> None:
    scheduler = BackgroundScheduler(Clients(1), clock=CLOCK)
    hanging = scheduler.turn(Work.RESYNC, 1 << 20)
    async with hanging, asyncio.timeout(10), scheduler.turn(Work.FOLD, 1):
        pass


async def test_a_kind_with_a_rate_never_exceeds_it() -> None:
    clock = SteppedClock()
    scheduler = BackgroundScheduler(clock=clock, rates={Work.SCRUB: 1000})
    for _ in range(3):
        async with scheduler.turn(Work.SCRUB, 500):
            pass
    assert clock.sleeps == [0.0, 0.5, 0.5]


async def test_a_new_rate_counts_for_a_piece_that_waits() -> None:
    clock = SteppedClock(0.0, sleepers_wait=True)
    scheduler = BackgroundScheduler(clock=clock, rates={Work.SCRUB: 1})

    async def pieces() -> None:
        for _ in range(3):
            async with scheduler.turn(Work.SCRUB, 1 << 20):
                pass

    scrubbing = asyncio.create_task(pieces())
    await clock.pass_by(100.0)
    assert scheduler.counters[Work.SCRUB].pieces == 1, "the second would wait for days"
    scheduler.set_rate(Work.SCRUB, 1 << 30)
    for _ in range(10):
        await clock.pass_by(1.0)
    assert scrubbing.done()


async def test_new_limits_count_from_the_next_pause_on() -> None:
    scheduler = BackgroundScheduler(Clients(1), PaceLimits(min_bytes_per_s=1), clock=CLOCK)
    scheduler.set_limits(PaceLimits(min_bytes_per_s=1 << 40, share=1.0))
    async with asyncio.timeout(30):
        for _ in range(3):
            async with scheduler.turn(Work.RESYNC, 64 << 20):
                pass


@pytest.mark.parametrize("loop_looks_at_timers_first", [False, True])
async def test_a_piece_whose_turn_comes_when_its_patience_ends_begins_once(loop_looks_at_timers_first: bool) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    scheduler = BackgroundScheduler(clock=CLOCK)
    began = 0

    async def impatient() -> None:
        nonlocal began
        async with scheduler.turn(Work.FOR_PEERS, 1, 0.01):
            began += 1

    async with contextlib.AsyncExitStack() as others:
        for _ in range(PARALLEL):
            await others.enter_async_context(scheduler.turn(Work.FOR_PEERS, 1))
        waiting = asyncio.create_task(impatient())
        await asyncio.sleep(0)
        until = CLOCK.monotonic() + 0.02
        while CLOCK.monotonic() < until:
            pass  # its patience ends in the step of the loop in which the others do
        if not loop_looks_at_timers_first:
            await asyncio.sleep(0)
    await waiting
    assert began == 1 and not errors
