import asyncio
import os
from collections.abc import Awaitable, Callable

from threefs_client.async_filesystem import AsyncFileSystem
from threefs_mount.cache.lock_revalidation import LockRevalidation
from threefs_mount.cache.validity import Validity
from threefs_mount.files.open_file_table import OpenFileTable

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.wire import meta_pb2 as pb


class Bench:
    """One file that is open. What the kernel would be told is counted, and takes as long as the test likes."""

    def __init__(self, memory: MemoryFiles) -> None:
        self.inode = memory.meta.files[b"a"]
        self.inode.nlink = 1
        self.files = OpenFileTable(memory.context, 1 << 20, Validity(1.0))
        self.renewals = LockRevalidation(self.files, self.stat, self.drop)
        self.drops = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def stat(self, inode: int) -> pb.Inode:
        assert inode == self.inode.inode
        found = pb.Inode()
        found.CopyFrom(self.inode)
        return found

    async def drop(self, inode: int) -> None:
        assert inode == self.inode.inode
        self.drops += 1
        await self.may_end.wait()

    async def lock(self) -> int:
        """How often the kernel was told."""
        before = self.drops
        await self.renewals.on_locked(self.inode.inode)
        return self.drops - before


def play(scene: Callable[[Bench], Awaitable[None]], *, opened: bool = True) -> None:
    async def run() -> None:
        memory = MemoryFiles(64 << 10)
        await AsyncFileSystem(memory.context).write_file("/a", b"content")
        bench = Bench(memory)
        if opened:
            await bench.files.open(bench.inode.inode, os.O_RDONLY, pb.Caller())
        await scene(bench)

    run_virtual(run())


def test_the_kernel_gives_up_its_pages_if_the_file_has_changed() -> None:
    async def scene(bench: Bench) -> None:
        assert [await bench.lock(), await bench.lock()] == [1, 0], "the first one knows nothing of before"
        for length in (7, 7, 8):
            bench.inode.length = length
            bench.inode.change += 1
            assert [await bench.lock(), await bench.lock()] == [1, 0]
        file = bench.files.get(bench.inode.inode)
        assert file is not None and file.inode.length == bench.inode.length, "reads go as far as the file does now"

    play(scene)


def test_no_program_has_a_lock_before_the_pages_are_dropped() -> None:
    async def scene(bench: Bench) -> None:
        bench.may_end.clear()
        locks = [asyncio.create_task(bench.lock()) for _ in range(2)]
        assert not (await asyncio.wait(locks, timeout=1.0))[0], "nor who comes while they go"
        bench.may_end.set()
        await asyncio.gather(*locks)
        assert await bench.lock() == 0

    play(scene)


def test_what_was_asked_before_is_too_old() -> None:
    async def scene(bench: Bench) -> None:
        number, inode = bench.renewals.generation, bench.inode.inode
        assert not bench.renewals.revalidated_since(inode, number)
        await bench.lock()
        assert bench.renewals.revalidated_since(inode, number) and not bench.renewals.revalidated_since(
            inode, bench.renewals.generation
        )
        assert not bench.renewals.revalidated_since(inode + 1, number)
        now = bench.renewals.generation
        await bench.lock()
        assert not bench.renewals.revalidated_since(inode, now), "nothing has changed"

    play(scene)


def test_a_closed_file_is_not_revalidated() -> None:
    async def scene(bench: Bench) -> None:
        assert await bench.lock() == 0

    play(scene, opened=False)


def test_what_is_lost_is_dropped_without_waiting_for_the_kernel() -> None:
    async def scene(bench: Bench) -> None:
        bench.may_end.clear()
        bench.renewals.on_lost(bench.inode.inode)
        await asyncio.sleep(0.01)
        assert bench.drops == 1
        bench.may_end.set()

    play(scene)
