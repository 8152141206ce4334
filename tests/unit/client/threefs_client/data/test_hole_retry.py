import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.write_budget import WriteBudget
from threefs_mount.files.open_file import OpenFile

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import DeadlineExceeded
from threefs.ids import InodeId
from threefs.inflight_ranges import writer_of
from threefs.layout import from_wire
from threefs.wire import meta_pb2 as pb

CHUNK = 64 << 10
OTHER = b"o" * 16

#: Reads so many bytes from the start of the file.
Read = Callable[[int], Awaitable[bytes]]


class Bench:
    """A file of three chunks of "old", and a hole behind them."""

    def __init__(self) -> None:
        self.files = MemoryFiles(CHUNK)
        self.fs = AsyncFileSystem(self.files.context)

    async def start(self) -> None:
        await self.fs.write_file("/a", b"o" * (3 * CHUNK))
        self.inode = self.files.meta.files[b"a"]
        self.inode.length = 4 * CHUNK

    async def put(self, number: int, content: bytes) -> None:
        assert self.files.meta.chunks is not None
        layout, inode = from_wire(self.inode.layout), InodeId(self.inode.inode)
        await self.files.meta.chunks.write(layout, inode, number, 0, content, timeout_s=5)

    async def remove(self, number: int) -> None:
        assert self.files.meta.chunks is not None
        layout, inode = from_wire(self.inode.layout), InodeId(self.inode.inode)
        await self.files.meta.chunks.remove(layout, inode, number, timeout_s=5)

    async def reads(self) -> dict[str, Read]:
        """All ways to read, of files that were open before."""
        file = await self.fs.open("/a")
        mounted = OpenFile(self.files.context, _copy(self.inode), WriteBudget(1 << 20))

        async def handle(size: int) -> bytes:
            view = memoryview(bytearray(size))
            return bytes(view[: await file.handle.read_into(0, view)])

        async def batch(size: int) -> bytes:
            rows = [(file, at, min(CHUNK, size - at)) for at in range(0, size, CHUNK)]
            return b"".join(map(bytes, await self.fs.read_batch(rows)))

        async def careful(size: int) -> bytes:
            return b"".join(map(bytes, await self.fs.read_batch([(file, 0, size)])))

        async def mount(size: int) -> bytes:
            return bytes(await mounted.read(0, size))

        return {"handle": handle, "batch": batch, "careful": careful, "mount": mount}


def _copy(inode: pb.Inode) -> pb.Inode:
    return pb.Inode.FromString(inode.SerializeToString())


def play(scene: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await bench.start()
        await scene(bench)

    run_virtual(run())


WAYS = pytest.mark.parametrize("way", ["handle", "batch", "careful", "mount"])


@WAYS
def test_a_hole_where_nothing_happens_is_zeros(way: str) -> None:
    async def scene(bench: Bench) -> None:
        assert await (await bench.reads())[way](4 * CHUNK) == b"o" * (3 * CHUNK) + bytes(CHUNK)

    play(scene)


@WAYS
def test_a_read_during_a_truncate_sees_the_truncated_file(way: str) -> None:
    async def scene(bench: Bench) -> None:
        read = (await bench.reads())[way]
        bench.inode.cutting = CHUNK + 1
        await bench.remove(2)
        reading = asyncio.ensure_future(read(3 * CHUNK))
        assert await read(CHUNK) == b"o" * CHUNK, "that stays"
        assert not (await asyncio.wait([reading], timeout=1.0))[0]
        bench.inode.length, bench.inode.cutting = CHUNK, 0
        bench.inode.truncate_version += 1
        assert await reading == b"o" * CHUNK

    play(scene)


@WAYS
def test_a_file_that_was_truncated_and_rewritten_during_a_read_is_read_again(way: str) -> None:
    """All is over when the reader asks."""

    async def scene(bench: Bench) -> None:
        read = (await bench.reads())[way]
        await bench.remove(1)
        stat = bench.files.meta._stat

        async def first_written(request: pb.StatRequest) -> pb.InodeReply:
            bench.files.meta._stat = stat  # type: ignore[method-assign]
            for number in range(3):
                await bench.put(number, b"n" * CHUNK)
            bench.inode.length = 3 * CHUNK
            bench.inode.change += 2  # the cut, and what was written then
            return await stat(request)

        bench.files.meta._stat = first_written  # type: ignore[method-assign]
        assert await read(3 * CHUNK) == b"n" * (3 * CHUNK)

    play(scene)


@WAYS
def test_an_append_that_is_still_to_come_is_waited_for(way: str) -> None:
    async def scene(bench: Bench) -> None:
        read = (await bench.reads())[way]
        bench.inode.appends.add(writer=writer_of(OTHER), offset=3 * CHUNK, end=4 * CHUNK)
        reading = asyncio.ensure_future(read(4 * CHUNK))
        assert not (await asyncio.wait([reading], timeout=1.0))[0]
        await bench.put(3, b"a" * CHUNK)
        assert await reading == b"o" * (3 * CHUNK) + b"a" * CHUNK

    play(scene)


@WAYS
def test_it_is_not_waited_for_ever(way: str) -> None:
    async def scene(bench: Bench) -> None:
        read = (await bench.reads())[way]
        bench.inode.appends.add(writer=writer_of(OTHER), offset=3 * CHUNK, end=4 * CHUNK)
        with pytest.raises(DeadlineExceeded, match="another client"):
            await read(4 * CHUNK)
        del bench.inode.appends[:]
        assert await read(4 * CHUNK) == b"o" * (3 * CHUNK) + bytes(CHUNK)

    play(scene)


def test_an_append_of_our_own_that_failed_is_no_reason_to_wait() -> None:
    async def scene(bench: Bench) -> None:
        file = await bench.fs.open("/a", "r+b")
        bench.inode.appends.add(writer=writer_of(file.handle.session), offset=3 * CHUNK, end=4 * CHUNK)
        view = memoryview(bytearray(4 * CHUNK))
        assert await file.handle.read_into(0, view) == 4 * CHUNK

    play(scene)


@WAYS
def test_an_append_that_has_come_since_it_was_read_is_read_once_more(way: str) -> None:
    """It is settled when the reader asks."""

    async def scene(bench: Bench) -> None:
        read = (await bench.reads())[way]
        bench.inode.appends.add(writer=writer_of(OTHER), offset=3 * CHUNK, end=4 * CHUNK)
        stat = bench.files.meta._stat

        async def settled_first(request: pb.StatRequest) -> pb.InodeReply:
            bench.files.meta._stat = stat  # type: ignore[method-assign]
            await bench.put(3, b"a" * CHUNK)
            del bench.inode.appends[:]
            bench.inode.change += 1
            return await stat(request)

        bench.files.meta._stat = settled_first  # type: ignore[method-assign]
        assert await read(4 * CHUNK) == b"o" * (3 * CHUNK) + b"a" * CHUNK

    play(scene)


def test_a_read_of_a_hole_ends_although_a_restore_took_the_change_counter_back() -> None:
    """A file that is open keeps what it knew until the next renewal tells it of the restore."""

    async def scene(bench: Bench) -> None:
        bench.inode.change = 9
        reads = await bench.reads()
        bench.inode.change = 5
        asked = 0
        call = bench.files.context.meta.call

        async def counted(*words: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            assert asked < 20, "it asks for ever"
            return await call(*words, **options)

        bench.files.context.meta.call = counted  # type: ignore[method-assign]
        for read in reads.values():
            asked = 0
            assert await read(4 * CHUNK) == b"o" * 3 * CHUNK + bytes(CHUNK)

    play(scene)
