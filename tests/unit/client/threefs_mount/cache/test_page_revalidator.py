import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.metadata.precreated import IDLE_S
from threefs_mount.cache import page_revalidator
from threefs_mount.cache.page_revalidator import PERIOD_S, PageRevalidator
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import PermissionDenied
from threefs.wire import meta_pb2 as pb

ROOT = pb.Caller()


class Bench:
    """Two files. What the kernel is told to give up is noted."""

    def __init__(self, memory: MemoryFiles) -> None:
        self.memory = memory
        self.files = OpenFileTable(memory.context, 1 << 20, Validity(1.0))
        self.dropped: list[int] = []
        self.reading: dict[int, asyncio.Event] = {}  # inodes with reads for which the kernel waits
        self.revalidator = PageRevalidator(memory.context, self.files, self._drop, 1.0)
        self.inodes = [memory.meta.files[name] for name in (b"a", b"b")]
        for inode in self.inodes:
            inode.nlink = 1

    async def _drop(self, inode: int) -> None:
        self.dropped.append(inode)
        if inode in self.reading:
            await self.reading[inode].wait()

    async def open(self, flags: int = os.O_RDONLY, number: int = 0) -> int:
        return (await self.files.open(self.inodes[number].inode, flags, ROOT))[0]

    async def read(self, handle: int) -> None:
        await self.files.handle(handle).file.read(0, 10)

    async def passes(self, periods: float = 1.3) -> list[int]:
        """What was dropped in that time."""
        self.dropped.clear()
        await self.memory.context.clock.sleep(periods * PERIOD_S)
        return list(self.dropped)


def play(scene: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        memory = MemoryFiles(64 << 10)
        for path in ("/a", "/b"):
            await AsyncFileSystem(memory.context).write_file(path, b"content")
        await memory.context.clock.sleep(2 * IDLE_S)  # the files made ahead are returned: no fault shall hit that call
        bench = Bench(memory)
        bench.revalidator.start()
        await scene(bench)
        await bench.revalidator.close()

    run_virtual(run())


def test_pages_of_files_that_others_have_changed_are_dropped_once() -> None:
    async def scene(bench: Bench) -> None:
        one, other = await bench.open(), await bench.open(number=1)
        await bench.read(one)
        await bench.read(other)
        assert await bench.passes() == []
        bench.inodes[0].change += 1
        assert await bench.passes() == [bench.inodes[0].inode]
        assert await bench.passes() == [], "the kernel has none"
        await bench.read(one)
        assert await bench.passes() == []
        bench.inodes[0].change += 1
        assert await bench.passes() == [bench.inodes[0].inode]

    play(scene)


def test_a_file_whose_pages_cannot_be_dropped_now_keeps_no_other_one() -> None:
    """A read of it waits for a chain, and the kernel for the read."""

    async def scene(bench: Bench) -> None:
        for number in range(2):
            await bench.read(await bench.open(number=number))
        bench.inodes[0].change += 1
        bench.reading[bench.inodes[0].inode] = asyncio.Event()
        assert await bench.passes() == [bench.inodes[0].inode]
        bench.inodes[1].change += 1
        assert await bench.passes() == [bench.inodes[1].inode]
        bench.reading.pop(bench.inodes[0].inode).set()
        bench.inodes[0].change += 1
        await bench.read(1)
        assert await bench.passes() == [bench.inodes[0].inode], "it is dropped again when that has ended"

    play(scene)


def test_nothing_is_asked_for_while_the_pages_of_all_files_are_being_dropped() -> None:
    async def scene(bench: Bench) -> None:
        handle = await bench.open()
        await bench.read(handle)
        bench.inodes[0].change += 1
        bench.reading[bench.inodes[0].inode] = asyncio.Event()
        await bench.passes()
        await bench.read(handle)
        before = len(bench.memory.peers.meta_calls)
        await bench.passes(5)
        assert "BatchStat" not in [name for _, name, _ in bench.memory.peers.meta_calls[before:]]

    play(scene)


def test_what_was_never_read_is_not_asked_for() -> None:
    async def scene(bench: Bench) -> None:
        await bench.open()
        bench.inodes[0].change += 1
        assert await bench.passes() == []

    play(scene)


def test_pages_from_before_the_file_was_opened_count_too() -> None:
    async def scene(bench: Bench) -> None:
        for _ in range(2):
            handle = await bench.open()
            await bench.read(handle)
            bench.files.release(handle)
        await bench.open()
        bench.inodes[0].change += 1
        assert await bench.passes() == [bench.inodes[0].inode]

    play(scene)


def test_our_own_changes_leave_the_pages() -> None:
    async def scene(bench: Bench) -> None:
        handle = await bench.open(os.O_RDWR)
        file = bench.files.handle(handle).file
        for content in (b"one", b"two"):
            await bench.files.write(handle, 0, content)
            await file.sync()
            assert await bench.passes() == []
        await bench.files.truncate(handle, 2, ROOT)
        file.apply_own_change(
            pb.Inode(inode=file.inode.inode, layout=file.inode.layout, length=2, change=file.pages_change + 1)
        )
        bench.inodes[0].change += 1  # as a change of the mode that we have asked for
        assert await bench.passes() == []
        await bench.files.write(handle, 0, b"mine")
        bench.inodes[0].change += 1
        await file.sync()
        assert await bench.passes() == [bench.inodes[0].inode], "somebody else's was among them"

    play(scene)


@pytest.mark.parametrize("error", [PermissionDenied("not now"), RuntimeError("a fault of ours")])
def test_it_goes_on_after_an_error(error: Exception) -> None:
    async def scene(bench: Bench) -> None:
        await bench.read(await bench.open())
        assert await bench.passes() == []  # nor are there access times to be told now
        bench.inodes[0].change += 1
        bench.memory.peers.meta_faults.append((False, error))
        assert await bench.passes(1) == []
        assert await bench.passes(1) == [bench.inodes[0].inode]

    play(scene)


@pytest.mark.parametrize(("most", "looks"), [(1000, 30), (1 / 6, 5)])
def test_with_many_files_it_asks_less_often(most: float, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_revalidator, "MAX_PER_S", most)

    async def scene(bench: Bench) -> None:
        for number in range(2):
            await bench.read(await bench.open(number=number))
        await bench.passes()
        before = bench.memory.peers.meta_calls.copy()
        await bench.passes(30)
        asked = bench.memory.peers.meta_calls[len(before) :]
        assert looks - 1 <= sum(name == "BatchStat" for _, name, _ in asked) <= looks + 1

    play(scene)
