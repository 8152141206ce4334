"""The loop of the simulator: virtual time, order, limits, and what asyncio offers on it."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.harness.processes import ROOT, environment
from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import BEGIN_S, Deadlock, OutOfTime, Process, SimLoop


def test_time_passes_only_between_timers() -> None:
    loop = SimLoop()

    async def main() -> list[float]:
        moments = [loop.time()]
        await asyncio.sleep(3600)
        moments.append(loop.time())
        await asyncio.sleep(0)
        return [*moments, loop.time()]

    assert loop.run(main()) == [BEGIN_S, BEGIN_S + 3600, BEGIN_S + 3600]


def test_callbacks_run_first_in_first_out_and_timers_by_time() -> None:
    loop = SimLoop()
    seen: list[str] = []

    async def main() -> None:
        loop.call_later(2, seen.append, "later")
        loop.call_at(loop.time() + 1, seen.append, "sooner")
        loop.call_at(loop.time() + 1, seen.append, "sooner, second")
        loop.call_later(-5, seen.append, "overdue")
        loop.call_later(1.5, seen.append, "cancelled").cancel()
        loop.call_soon(seen.append, "now")
        loop.call_soon(seen.append, "now, second")
        loop.call_soon(seen.append, "cancelled").cancel()
        await asyncio.sleep(3)

    loop.run(main())
    assert seen == ["now", "now, second", "overdue", "sooner", "sooner, second", "later"]


async def _timeout() -> str:
    try:
        async with asyncio.timeout(1):
            await asyncio.sleep(5)
    except TimeoutError:
        return "too late"
    return "in time"


async def _gather() -> list[int]:
    async def one(number: int) -> int:
        await asyncio.sleep(10 - number)
        return number

    return await asyncio.gather(*map(one, range(3)))


async def _wait() -> tuple[int, int]:
    done, pending = await asyncio.wait(
        [asyncio.ensure_future(asyncio.sleep(n)) for n in (1, 5)], return_when=asyncio.FIRST_COMPLETED
    )
    for task in pending:
        task.cancel()
    return len(done), len(pending)


async def _shield() -> str:
    inner = asyncio.create_task(asyncio.sleep(2, "still came"))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 1)
    return await inner


async def _locks() -> list[str]:
    lock, begin, order = asyncio.Lock(), asyncio.Event(), list[str]()

    async def enter(name: str) -> None:
        await begin.wait()
        async with lock:
            await asyncio.sleep(1)
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(enter(name))
        begin.set()
    return order


async def _group() -> str:
    async def fail() -> None:
        raise ValueError

    cut_off = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            cut_off.set()
            raise

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(wait())
            await asyncio.sleep(1)
            group.create_task(fail())
    return "cut off" if cut_off.is_set() else "went on"


@pytest.mark.parametrize(
    ("main", "result", "lasts_s"),
    [
        (_timeout, "too late", 1),
        (_gather, [0, 1, 2], 10),
        (_wait, (1, 1), 1),
        (_shield, "still came", 2),
        (_locks, ["a", "b", "c"], 3),
        (_group, "cut off", 1),
    ],
)
def test_what_asyncio_offers_works(main: Callable[[], Coroutine[Any, Any, Any]], result: Any, lasts_s: float) -> None:
    loop = SimLoop()
    assert loop.run(main()) == result
    assert loop.time() - BEGIN_S == lasts_s


def test_what_waits_for_nothing_is_a_deadlock_that_names_it() -> None:
    loop = SimLoop()

    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_ever line"):
        loop.run(waits_for_ever())
    loop.discard()


def test_a_run_ends_at_its_limit_of_virtual_time() -> None:
    loop = SimLoop()
    with pytest.raises(OutOfTime, match=r"1\d\.\d s"):
        loop.run(_ticks(), limit_s=10)
    loop.discard()


async def _ticks() -> None:
    while True:
        await asyncio.sleep(1)


def test_a_run_ends_at_its_limit_of_steps_even_if_time_stands_still() -> None:
    loop = SimLoop()

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(OutOfTime):
        loop.run(_ticks(), most_steps=1000)
    assert loop.steps < 2000 and not loop.failures
    loop.discard()


def test_what_runs_in_a_thread_has_the_moment_for_itself() -> None:
    async def main() -> None:
        assert await asyncio.to_thread(max, 1, 2) == 2
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 1, 0)

    SimLoop().run(main())


def test_uncaught_exceptions_are_noted() -> None:
    loop = SimLoop()

    async def main() -> None:
        loop.call_soon(int, "no number")
        await asyncio.sleep(1)

    loop.run(main())
    assert len(loop.failures) == 1 and "no number" in loop.failures[0]


def _digest(seed: int) -> int:
    loop, dice = SimLoop(), SeededRandom(seed)

    async def wander(process: Process) -> None:
        while process.loop.time() < BEGIN_S + 5:
            await asyncio.sleep(dice.uniform(0, 0.1))

    async def main() -> None:
        await asyncio.gather(*(each.start(wander(each)) for each in (Process(loop, n, n) for n in "abc")))

    loop.run(main())
    return loop.digest


def test_a_seed_has_one_digest_in_every_interpreter() -> None:
    told = [_digest(3), _digest(3)]
    for hash_seed in ("0", "5"):
        command = [sys.executable, "-c", "from tests.harness.simulated.test_loop import _digest; print(_digest(3))"]
        env = {**environment(), "PYTHONHASHSEED": hash_seed}
        told.append(int(subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, text=True).stdout))
    assert len(set(told)) == 1
    assert _digest(4) != told[0]


def test_a_discarded_world_leaves_nothing_to_the_garbage_collector() -> None:
    loop, other = SimLoop(), SimLoop()
    late: list[str] = []

    async def tidies_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(late.append, "of a dead world")
            await asyncio.sleep(1)

    async def never_begins() -> None:
        late.append("began")

    async def main() -> None:
        process = Process(loop, "p", "p")
        process.start(tidies_up())
        await asyncio.sleep(1)
        process.start(never_begins())
        process.kill()

    loop.run(main())
    loop.discard()
    loop = SimLoop()  # the last reference to the first one is gone

    async def meanwhile() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gc.collect()
        await asyncio.sleep(1)

    other.run(meanwhile())
    assert not late and not other.failures


def test_clocks_drift() -> None:
    loop = SimLoop()
    exact, fast = SimClock(loop), SimClock(loop, rate=1.25, offset_s=7)

    async def main() -> None:
        begin = fast.monotonic(), fast.wall_ns()
        assert begin[0] == BEGIN_S * 1.25 + 7
        await fast.sleep(10)
        assert exact.monotonic() == BEGIN_S + 8, "it slept ten of its own seconds"
        assert (fast.monotonic() - begin[0], fast.wall_ns() - begin[1]) == (10, 10_000_000_000)

    loop.run(main())


def test_random_streams_of_other_names_are_independent_and_repeatable() -> None:
    one, same, other = SeededRandom(1, "net"), SeededRandom(1, "net"), SeededRandom(1, "disk")
    assert (draws := [one.below(1000) for _ in range(20)]) == [same.below(1000) for _ in range(20)]
    assert draws != [other.below(1000) for _ in range(20)]
    assert one.token(16) == same.token(16) and one.uniform(2, 3) == same.uniform(2, 3)
    assert all(2 <= one.uniform(2, 3) <= 3 for _ in range(100)) and not one.chance(0) and one.chance(1.1)


def test_sleep_is_counted_while_it_lasts() -> None:
    async def body(loop: SimLoop) -> None:
        process = Process(loop, "p", "h")
        process.pause()
        await asyncio.sleep(3.0)
        assert (process.asleep_s(), process.slept_s) == (3.0, 0.0)
        process.resume()
        await asyncio.sleep(1.0)
        assert (process.asleep_s(), process.slept_s) == (3.0, 3.0)

    loop = SimLoop()
    loop.run(body(loop))
    loop.discard()


def test_time_passes_by_however_short_a_sleep_is() -> None:
    """The rest of a wait may be so short that the sum with the time is the time."""
    loop = SimLoop()
    woken: list[float] = []
    loop.call_later(1e-14, lambda: woken.append(loop.time()))
    begin = loop.time()

    async def body() -> None:
        await asyncio.sleep(1e-3)

    loop.run(body())
    loop.discard()
    assert woken and woken[0] > begin
