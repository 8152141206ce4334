import asyncio
import threading

import pytest

from threefs.env.worker import StopFlag, ThreadWorker


def test_calls_run_in_another_thread_in_their_order() -> None:
    async def main() -> None:
        worker = ThreadWorker("test")
        order: list[int] = []
        names = await asyncio.gather(*(worker.run(note, order, number) for number in range(20)))
        assert order == list(range(20))
        assert set(names) == {"test_0"} and threading.current_thread().name != "test_0"
        await worker.close()
        assert not any(thread.name == "test_0" for thread in threading.enumerate())

    def note(order: list[int], number: int) -> str:
        order.append(number)
        return threading.current_thread().name

    asyncio.run(main())


def test_several_threads_run_side_by_side() -> None:
    async def main() -> None:
        worker = ThreadWorker("test", threads=2)
        meeting = threading.Barrier(2)
        await asyncio.gather(worker.run(meeting.wait, 30), worker.run(meeting.wait, 30))
        await worker.close()

    asyncio.run(main())


def test_errors_come_back() -> None:
    async def main() -> None:
        worker = ThreadWorker("test")
        with pytest.raises(ValueError, match="nonsense"):
            await worker.run(int, "nonsense")
        await worker.close()

    asyncio.run(main())


def test_a_stop_flag_ends_a_pause() -> None:
    async def main() -> None:
        flag, worker = StopFlag(), ThreadWorker("test")
        assert not flag.wait(0.001)
        waiting = asyncio.create_task(worker.run(flag.wait, 3600.0))
        await asyncio.sleep(0.01)
        flag.set()
        assert await waiting and flag.wait(0)
        await worker.close()

    asyncio.run(main())
