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


async def file_whose_write_has_failed(files: MemoryFiles, fs: AsyncFileSystem) -> tuple[AsyncFile, set[str]]:
    """A file with 64 KiB that could not be sent in the background, and the storage services that are down."""
    file = await fs.open("/a", "wb")
    down = storage_addresses(files)
    files.storage.down |= down
    await file.write(b"a" * 64 * KIB)
    await asyncio.sleep(10)
    return file, down


def test_an_error_in_the_background_is_raised_by_the_next_write_once_and_nothing_is_lost() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file, down = await file_whose_write_has_failed(files, fs)
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
        file, _ = await file_whose_write_has_failed(files, fs)
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


def test_a_write_that_has_failed_or_was_cancelled_is_repeated_where_it_began() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        content = bytes(range(256)) * 1024
        file = await fs.open("/a", "wb")
        await file.write(b"before")
        files.context.write_budget.try_take((1 << 20) - 128 * KIB)
        with pytest.raises(DeadlineExceeded):
            await file.write(content)
        assert file.tell() == len(b"before")
        work = asyncio.ensure_future(file.write(content))
        await asyncio.sleep(1)
        await cancel_and_wait(work)
        assert file.tell() == len(b"before")
        files.context.write_budget.give((1 << 20) - 128 * KIB)
        await file.write(content)
        await file.close()
        assert await fs.read_file("/a") == b"before" + content

    play(scene, write_buffer_bytes=512 * KIB, max_dirty_bytes=1 << 20)


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


def test_a_read_of_what_was_written_sends_nothing() -> None:
    """Neither what is gathered nor what is in flight; and what is stored is read below them."""

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        stored = bytes(range(256)) * 800
        await fs.write_file("/a", stored)
        async with await fs.open("/a", "r+b") as file:
            before = files.storage.applied
            file.seek(100_000)
            await file.write(b"gathered")
            file.seek(99_990)
            assert await file.read(28) == stored[99_990:100_000] + b"gathered" + stored[100_008:100_018]
            file.seek(len(stored) - 1)
            assert await file.read(10) == stored[-1:]
            assert files.storage.applied == before
            await file.flush()
            files.storage.pause_s = lambda: 10.0
            file.seek(0)
            await file.write(b"x" * 64 * KIB)
            await asyncio.sleep(0.1)
            assert file._write_behind.is_sending
            files.storage.pause_s = lambda: 0.0
            file.seek(64 * KIB - 2)
            buffer = bytearray(4)
            assert await file.readinto(buffer) == 4 and buffer == b"xx" + stored[64 * KIB : 64 * KIB + 2]
            assert file._write_behind.is_sending, "it was not waited for"

    play(scene, write_buffer_bytes=64 * KIB)


@pytest.mark.parametrize("change", ["write", "truncate", "batch"])
def test_what_was_in_memory_is_not_shown_after_a_change(change: str) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"old line\n" * 5000)
        async with await fs.open("/a", "r+b") as file:
            for _ in range(2000):
                assert await file.readline() == b"old line\n"
            place = file.tell()
            assert place == 2000 * 9
            if change == "write":
                assert await file.write(b"new line\n") == 9
                await file.flush()
                file.seek(place)
            elif change == "truncate":
                await file.truncate(place + 4)
            else:
                await fs.write_batch([(file, place, b"new line\n")])
            assert await file.readline() == {"truncate": b"old "}.get(change, b"new line\n")

    play(scene)


def test_a_program_that_has_turned_to_reading_reads_ahead() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", bytes(1 << 20))
        async with await fs.open("/a", "r+b") as file:
            await file.write(b"header")
            for _ in range(200):
                assert await file.read(1000)
            assert not file.has_unsent_writes and len(files.reads()) < 20

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
        st.tuples(st.just("text"), st.integers(0, 1000), READS),
        st.tuples(st.just("line"), st.just(0), READS),
        st.tuples(st.just("lines"), st.integers(1, 300), st.just(0)),
        st.tuples(st.just("part of a line"), st.just(0), READS),
        st.tuples(st.just("into"), st.just(0), READS),
        st.tuples(st.just("peek"), st.just(0), READS),
        st.tuples(st.just("truncate"), st.integers(0, 300_000), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("fail"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30), READS),
        st.tuples(st.just("cancel write"), st.integers(0, 30), READS),
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
            if kind == "text":
                data = b"".join(b"%d" % random.getrandbits(9) * random.randrange(9) + b"\n" for _ in range(at))
                size = len(data)
            if kind in ("write", "on", "text"):
                place = file.seek(at) if kind == "write" else file.tell()
                await _until_done(file, file.write, data)
                assert file.tell() == place + size
                _put(model, place, data)
            elif kind in ("read", "read on", "line", "lines", "part of a line", "into", "peek"):
                await _read(kind, at, size, file, model)
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
            elif kind == "cancel write":
                place = file.tell()
                writing = asyncio.ensure_future(file.write(data))
                await asyncio.sleep(at / 1000)
                await cancel_and_wait(writing)
                if writing.cancelled() or writing.exception() is not None:
                    assert file.tell() == place
                    await _until_done(file, file.write, data)
                _put(model, place, data)
            else:
                place = file.tell()
                reading = asyncio.ensure_future(file.read(size))
                await asyncio.sleep(at / 1000)
                await cancel_and_wait(reading)
                file.seek(place)
            assert file.length == len(model)
        files.storage.before.clear()
        await file.close()
        assert await fs.read_file("/a") == model

    play(scene, write_buffer_bytes=256 * KIB, read_ahead_bytes=128 * KIB)


async def _read(kind: str, at: int, size: int, file: AsyncFile, model: bytearray) -> None:
    """One of the calls that read, compared with the model."""
    if kind in ("read", "read on"):
        place = file.seek(at) if kind == "read" else file.tell()
        assert await _until_done(file, file.read, size) == model[place : place + size]
    elif kind == "line":
        place = file.tell()
        end = model.find(b"\n", place) + 1 or len(model)
        assert await _until_done(file, file.readline) == model[place:end]
    elif kind == "lines":
        for _ in range(at):
            place = file.tell()
            end = model.find(b"\n", place) + 1 or len(model)
            assert await _until_done(file, file.readline) == model[place:end]
    elif kind == "part of a line":
        place = file.tell()
        end = min(place + size, model.find(b"\n", place) + 1 or len(model))
        assert await _until_done(file, file.readline, size) == model[place:end]
    elif kind == "into":
        place, buffer = file.tell(), bytearray(size)
        got = await _until_done(file, file.readinto, buffer)
        assert buffer[:got] == model[place : place + size]
    elif kind == "peek":
        place, got = file.tell(), await _until_done(file, file.peek, size)
        assert model[place:].startswith(got) and (got or place >= len(model)) and file.tell() == place


async def _until_done(file: AsyncFile, call: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Repeat a call that fails for want of space. A write begins where it began; a read may have moved the position."""
    place = file.tell()
    while True:
        try:
            return await call(*arguments)
        except NoSpace:
            assert call != file.write or file.tell() == place
            file.seek(place)


def _put(model: bytearray, at: int, data: bytes) -> None:
    if data:
        model.extend(bytes(max(0, at - len(model))))
        model[at : at + len(data)] = data
