import os

import pytest
from threefs_mount.files.open_file_table import SYNC_AFTER_S, OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.open_files import ROOT, play
from threefs.errors import ThreefsError, Unavailable
from threefs.wire import meta_pb2 as pb


async def dirty_handles(memory: MemoryFiles, files: OpenFileTable, count: int) -> list[int]:
    numbers = []
    for name in range(count):
        request = pb.CreateRequest(mutation=memory.context.meta.mutation(), place=pb.Place(base=1, path=b"%d" % name))
        number, _ = await files.create(request, os.O_WRONLY, ROOT)
        await files.write(number, 0, b"held")
        numbers.append(number)
    await memory.context.clock.sleep(0.1)
    return numbers


def nobody_answers(memory: MemoryFiles) -> None:
    memory.storage.down |= {node.address for node in memory.cluster.routing.nodes.values()}
    memory.peers.meta_faults = [(False, Unavailable("it is down"))] * 1_000_000


def all_answer(memory: MemoryFiles) -> None:
    memory.storage.down.clear()
    memory.peers.meta_faults.clear()


def test_the_closes_of_a_program_that_ends_share_a_deadline_when_no_service_answers() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        numbers = await dirty_handles(memory, files, 20)
        nobody_answers(memory)
        began_s = memory.context.clock.monotonic()
        for number in numbers:
            with pytest.raises(ThreefsError):
                await files.handle(number).flush(lambda: True)
        took_s = memory.context.clock.monotonic() - began_s
        assert took_s <= 2 * memory.context.options.timeout_s + 1, "one for the bytes, and one for the length"
        began_s = memory.context.clock.monotonic()
        with pytest.raises(ThreefsError):
            await files.handle(numbers[-1]).flush(lambda: False)
        waited_s = memory.context.clock.monotonic() - began_s
        assert waited_s >= memory.context.options.timeout_s / 2, "a program that closes a file itself gets the outcome"
        all_answer(memory)
        await files.stop()

    play(scene)


def test_after_an_answer_closes_wait_again() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        files.start()
        first, second = await dirty_handles(memory, files, 2)
        nobody_answers(memory)
        with pytest.raises(ThreefsError):
            await files.handle(first).flush(lambda: True)
        all_answer(memory)
        await memory.context.clock.sleep(2 * SYNC_AFTER_S + 1)
        await files.write(second, 4, b" on")
        await files.handle(second).sync_quietly()
        await files.write(second, 7, b", too")
        with pytest.raises(ThreefsError, match="storage-1:1 is down"):  # the loss of before, not the deadline
            await files.handle(second).flush(lambda: True)
        assert memory.meta.files[b"1"].length == len("held on, too")
        await files.stop()

    play(scene)


def test_bytes_that_were_written_later_have_their_own_time() -> None:
    async def scene(memory: MemoryFiles, files: OpenFileTable, inode: int) -> None:
        first, second = await dirty_handles(memory, files, 2)
        await files.handle(second).sync()
        nobody_answers(memory)
        with pytest.raises(ThreefsError):
            await files.handle(first).flush(lambda: True)
        await files.write(second, 4, b" on")
        began_s = memory.context.clock.monotonic()
        with pytest.raises(ThreefsError):
            await files.handle(second).flush(lambda: True)
        assert memory.context.clock.monotonic() - began_s >= memory.context.options.timeout_s
        all_answer(memory)
        await files.stop()

    play(scene)
