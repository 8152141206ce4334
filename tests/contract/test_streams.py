"""File objects as streams: what travels in the background is never to be seen, and its errors are."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import DeadlineExceeded, NoSpace, Unavailable

KIB = 1 << 10


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> MemoryFiles:
    files = MemoryFiles(**options)

    async def run() -> None:
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())
    return files


def storage_addresses(files: MemoryFiles) -> set[str]:
    return {node.address for node in files.cluster.routing.nodes.values() if node.address.startswith("storage")}


def test_an_error_in_the_background_is_raised_by_the_next_write_once_and_nothing_is_lost() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        down = storage_addresses(files)
        files.storage.down |= down
        await file.write(b"a" * 64 * KIB)
        await asyncio.sleep(10)
        with pytest.raises(Unavailable):
            await file.write(b"never")
        assert file.tell() == 64 * KIB, "that write was not taken"
        await file.write(b"b" * 10)
        with pytest.raises(Unavailable):
            await file.flush()
        files.storage.down -= down
        await file.flush()
        assert await fs.read_file("/a") == b"a" * 64 * KIB + b"b" * 10
        await file.close()

    play(scene, write_buffer_bytes=64 * KIB)


def test_a_close_fails_if_something_is_not_durable() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        down = storage_addresses(files)
        files.storage.down |= down
        await file.write(b"a" * 64 * KIB)
        await asyncio.sleep(10)
        with pytest.raises(Unavailable):
            await file.close()
        assert not file.has_unsent_writes and files.context.write_budget.try_take(64 << 20), "it holds nothing any more"

    play(scene, write_buffer_bytes=64 * KIB)


def test_writes_return_before_they_are_durable_but_a_flush_does_not() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        clock, pause_s = asyncio.get_running_loop(), 1.0
        file = await fs.open("/a", "wb")
        files.storage.pause_s = lambda: pause_s
        began = clock.time()
        for number in range(16):
            await file.write(bytes([number]) * 64 * KIB)
        assert clock.time() == began, "nothing was waited for"
        await file.flush()
        assert clock.time() >= began + pause_s
        assert await fs.read_file("/a") == b"".join(bytes([number]) * 64 * KIB for number in range(16))

    play(scene)


def test_a_file_holds_no_more_than_its_option_says() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        files.storage.pause_s = lambda: 1.0
        async with await fs.open("/a", "wb") as file:
            for number in range(600):
                await file.write(bytes([number % 256]) * 10 * KIB)
                assert file._write_behind.held_bytes + len(file._write_buffer) <= (512 + 256) * KIB
        assert len(await fs.read_file("/a")) == 6000 * KIB

    play(scene, write_buffer_bytes=512 * KIB)


def test_a_write_without_room_fails_in_time() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        files.context.write_budget.try_take(1 << 20)  # a file that nobody closes has it
        with pytest.raises(DeadlineExceeded, match="max_dirty_bytes"):
            await file.write(b"y" * 64 * KIB)
        files.context.write_budget.give(1 << 20)
        await file.close()
        assert await fs.read_file("/a") == b"y" * 64 * KIB, "what was taken over is not lost"

    play(scene, write_buffer_bytes=128 * KIB, max_dirty_bytes=1 << 20)


def test_lines_and_small_reads_need_no_calls() -> None:
    lines = [b"line %d\n" % number for number in range(5000)]

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"".join(lines) + b"x" * 100 * KIB)
        async with await fs.open("/a") as file:
            found = [line async for line in file]
            assert found == [*lines, b"x" * 100 * KIB] and len(files.reads()) <= 4
            file.seek(0)
            assert [await file.readline(3), await file.readline(100), await file.readline(0)] == [b"lin", b"e 0\n", b""]
            file.seek(9)
            assert await file.readline() == lines[1][-7:] or await file.readline()

    play(scene)


READS = st.sampled_from((1, 10, 1000, 5000, 70_000, 300_000))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 300_000), READS),
        st.tuples(st.just("on"), st.just(0), READS),
        st.tuples(st.just("on"), st.just(0), READS),
        st.tuples(st.just("read"), st.integers(0, 400_000), READS),
        st.tuples(st.just("read on"), st.just(0), READS),
        st.tuples(st.just("read on"), st.just(0), READS),
        st.tuples(st.just("line"), st.just(0), READS),
        st.tuples(st.just("into"), st.just(0), READS),
        st.tuples(st.just("peek"), st.just(0), READS),
        st.tuples(st.just("truncate"), st.integers(0, 300_000), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("fail"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30), READS),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 1 << 32))
def test_a_stream_behaves_like_bytes_in_memory(steps: list[tuple[str, int, int]], seed: int) -> None:
    """Writes travel in the background, fail there, and reads are read ahead: nothing of this is to be seen."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        random = Random(seed)
        files.storage.pause_s = lambda: random.uniform(0.0, 0.02)
        file, model = await fs.open("/a", "w+b"), bytearray()
        for number, (kind, at, size) in enumerate(steps):
            data = bytes([97 + number % 26]) * (size - 1) + b"\n"
            if kind in ("write", "on"):
                place = file.seek(at) if kind == "write" else file.tell()
                await _until_done(file, file.write, data)
                assert file.tell() == place + size
                _put(model, place, data)
            elif kind in ("read", "read on"):
                place = file.seek(at) if kind == "read" else file.tell()
                assert await _until_done(file, file.read, size) == model[place : place + size]
            elif kind == "line":
                place = file.tell()
                end = model.find(b"\n", place) + 1 or len(model)
                assert await _until_done(file, file.readline) == model[place:end]
            elif kind == "into":
                place, buffer = file.tell(), bytearray(size)
                got = await _until_done(file, file.readinto, buffer)
                assert buffer[:got] == model[place : place + size]
            elif kind == "peek":
                place, got = file.tell(), await _until_done(file, file.peek, size)
                assert model[place:].startswith(got) and (got or place >= len(model)) and file.tell() == place
            elif kind == "truncate":
                await _until_done(file, file.truncate, at)
                del model[at:]
                model.extend(bytes(at - len(model)))
            elif kind == "flush":
                await _until_done(file, file.flush)
                files.storage.before.clear()
                assert await fs.read_file("/a") == model
            elif kind == "wait":
                await asyncio.sleep(at / 1000)
            elif kind == "fail":
                files.storage.before += [lambda *_: NoSpace("full")] * at
            else:
                place = file.tell()
                task = asyncio.ensure_future(file.read(size))
                await asyncio.sleep(at / 1000)
                await cancel_and_wait(task)
                file.seek(place)
            assert file.length == len(model)
        files.storage.before.clear()
        await file.close()
        assert await fs.read_file("/a") == model

    play(scene, write_buffer_bytes=256 * KIB, read_ahead_bytes=128 * KIB)


async def _until_done(file: AsyncFile, call: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Repeat a call that fails for want of space, from where it began."""
    place = file.tell()
    while True:
        try:
            return await call(*arguments)
        except NoSpace:
            file.seek(place)


def _put(model: bytearray, at: int, data: bytes) -> None:
    if data:
        model.extend(bytes(max(0, at - len(model))))
        model[at : at + len(data)] = data
