import asyncio
import os

from threefs_mount.kernel_tasks import Closed, KernelTasks


def test_a_task_waits_for_what_can_be_read_and_never_blocks() -> None:
    async def scene() -> None:
        tasks = KernelTasks()
        reader, writer = os.pipe()
        waiting = asyncio.create_task(tasks.wait_readable(reader))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writer, b"x")
        await waiting
        assert os.read(reader, 1) == b"x"
        assert not os.get_blocking(reader)
        os.close(reader)
        os.close(writer)

    asyncio.run(scene())


def test_nobody_waits_when_it_is_closed() -> None:
    async def scene() -> None:
        tasks = KernelTasks()
        reader, writer = os.pipe()
        waiting = asyncio.create_task(tasks.wait_readable(reader))
        await asyncio.sleep(0)
        tasks.notify_closing(reader)
        try:
            await waiting
            raise AssertionError("it must be told")
        except Closed:
            pass
        os.close(reader)
        os.close(writer)

    asyncio.run(scene())


def test_what_goes_wrong_once_is_tried_again_and_the_block_waits_for_all() -> None:
    async def scene() -> None:
        done: list[str] = []
        errors = [BlockingIOError(), ValueError("one request")]

        async def work(name: str) -> None:
            await asyncio.sleep(0)
            if name == "troubled" and errors:
                raise errors.pop()
            done.append(name)

        async with KernelTasks().open_nursery() as nursery:
            nursery.start_soon(work, "troubled", name="first")
            nursery.start_soon(work, "quiet", name="second")
        assert sorted(done) == ["quiet", "troubled"]

    asyncio.run(scene())


def test_a_kernel_that_is_gone_ends_the_task() -> None:
    async def scene() -> None:
        tries = 0

        async def work() -> None:
            nonlocal tries
            tries += 1
            raise OSError("gone")

        async with KernelTasks().open_nursery() as nursery:
            nursery.start_soon(work)
        assert tries == 1

    asyncio.run(scene())
