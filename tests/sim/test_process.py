"""Killed and paused processes of the simulator."""

import asyncio
import gc

from tests.harness.simulated.loop import PROCESS, Process, SimLoop


def test_what_a_process_starts_belongs_to_it() -> None:
    loop = SimLoop()
    one, other = Process(loop, "one", "a"), Process(loop, "other", "b")
    seen: list[Process | None] = []

    async def child() -> None:
        seen.append(PROCESS.get())
        loop.call_soon(lambda: seen.append(PROCESS.get()))
        loop.call_later(1, lambda: seen.append(PROCESS.get()))

    async def parent() -> None:
        await asyncio.create_task(child())
        future = loop.create_future()
        future.add_done_callback(lambda _: seen.append(PROCESS.get()))
        other.loop.call_soon(future.set_result, None)
        await future

    async def main() -> None:
        await one.start(parent())
        await asyncio.sleep(2)
        assert seen == [one] * 4
        await other.start(child())
        assert seen[4] is other and PROCESS.get() is None

    loop.run(main())


def test_nothing_of_a_killed_process_ever_runs_again() -> None:
    loop = SimLoop()
    process = Process(loop, "p", "a")
    seen: list[str] = []
    told = asyncio.Event()

    async def works() -> None:
        loop.call_later(3, seen.append, "timer")
        loop.call_soon(seen.append, "soon")
        try:
            await asyncio.wait([asyncio.create_task(told.wait())])
            seen.append("went on")
        finally:
            seen.append("finally")

    async def main() -> None:
        task = process.start(works())
        await asyncio.sleep(1)
        assert seen == ["soon"]
        process.kill()
        process.kill()
        process.resume()
        told.set()
        task.cancel()
        await asyncio.sleep(10)
        gc.collect()
        assert seen == ["soon"] and not task.done() and not process.alive and not process.running

    loop.run(main())
    loop.discard()


def test_a_process_may_kill_itself_in_the_middle() -> None:
    loop = SimLoop()
    process = Process(loop, "p", "a")
    seen: list[str] = []

    async def works() -> None:
        loop.call_soon(process.kill)
        loop.call_soon(seen.append, "after the kill in the same turn")
        await asyncio.sleep(0)
        seen.append("the step after")

    async def main() -> None:
        process.start(works())
        await asyncio.sleep(1)

    loop.run(main())
    loop.discard()
    assert seen == []


def test_the_kernel_acts_once_when_a_process_ends() -> None:
    loop = SimLoop()
    process = Process(loop, "p", "a")
    seen: list[str] = []
    process.on_kill[lambda: seen.append("first")] = None
    process.on_kill[lambda: seen.append("second")] = None
    process.kill()
    process.kill()
    assert seen == ["first", "second"]


def test_a_paused_process_goes_on_where_it_was_in_the_same_order() -> None:
    loop = SimLoop()
    process = Process(loop, "p", "a")
    seen: list[tuple[str, float]] = []

    def note(what: str) -> None:
        seen.append((what, loop.time() - 1000))

    async def works() -> None:
        for at in (1, 2, 3, 9):
            loop.call_later(at, note, f"timer {at}")
        await asyncio.sleep(2.5)
        note("slept")

    async def main() -> None:
        process.start(works())
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(5)
        assert seen == [("timer 1", 1)]
        process.resume()
        await asyncio.sleep(5)

    loop.run(main())
    assert seen == [("timer 1", 1), ("timer 2", 6.5), ("timer 3", 6.5), ("slept", 6.5), ("timer 9", 9)]


def test_a_paused_process_can_be_killed() -> None:
    loop = SimLoop()
    process = Process(loop, "p", "a")
    seen: list[str] = []

    async def works() -> None:
        await asyncio.sleep(2)
        seen.append("slept")

    async def main() -> None:
        process.start(works())
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(2)
        process.kill()
        process.resume()
        await asyncio.sleep(2)

    loop.run(main())
    loop.discard()
    assert seen == []
