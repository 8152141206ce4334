import asyncio
import threading

import pytest

from threefs.env.worker_threads import StopFlag, ThreadWorker, run_in_thread


async def test_calls_run_in_another_thread_in_their_order() -> None:
    def note(order: list[int], number: int) -> str:
        order.append(number)
        return threading.current_thread().name

    worker = ThreadWorker("test")
    order: list[int] = []
    names = await asyncio.gather(*(worker.run(note, order, number) for number in range(20)))
    assert order == list(range(20))
    assert set(names) == {"test_0"} and threading.current_thread().name != "test_0"
    await worker.close()
    assert not any(thread.name == "test_0" for thread in threading.enumerate())


async def test_several_threads_run_side_by_side() -> None:
    worker = ThreadWorker("test", threads=2)
    meeting = threading.Barrier(2)
    await asyncio.gather(worker.run(meeting.wait, 30), worker.run(meeting.wait, 30))
    await worker.close()


async def test_errors_come_back() -> None:
    worker = ThreadWorker("test")
    with pytest.raises(ValueError, match="nonsense"):
        await worker.run(int, "nonsense")
    await worker.close()


async def test_a_stop_flag_ends_a_pause() -> None:
    flag, worker = StopFlag(), ThreadWorker("test")
    assert not flag.wait(0.001)
    waiting = asyncio.create_task(worker.run(flag.wait, 3600.0))
    await asyncio.sleep(0.01)
    flag.set()
    assert await waiting and flag.wait(0)
    await worker.close()


async def test_a_call_may_run_in_a_thread_of_the_loop() -> None:
    assert await run_in_thread(threading.get_ident) != threading.get_ident()
    assert await run_in_thread(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(divmod, 7, 0)
