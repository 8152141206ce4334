import asyncio
import io
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data import handles

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.errors import (
    ConnectionLost,
    FileTooLarge,
    InvalidArgument,
    NoSpace,
    NotFound,
    OutcomeUnknown,
    SessionLost,
)

KIB = 1 << 10


def play(scene: Callable[[MemoryFiles, AsyncFileSystem], Awaitable[None]], **options: Any) -> MemoryFiles:
    files = MemoryFiles(**options)

    async def run() -> None:
        await scene(files, AsyncFileSystem(files.context))

    run_virtual(run())
    return files


def test_written_bytes_are_read() -> None:
    content = bytes(range(256)) * 1000 + b"odd"

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb") as file:
            assert await file.write(content) == len(content)
        assert not files.meta.sessions - {b""}, "closing ends the write session"
        async with await fs.open("/a") as file:
            assert await file.read() == content
            assert await file.read() == b""
            await_seek = file.seek(-3, io.SEEK_END)
            assert await_seek == len(content) - 3
            assert await file.read(10) == b"odd"

    play(scene)


def test_small_writes_are_buffered_and_sent_as_whole_chunks() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb") as file:
            for _ in range(200):
                await file.write(b"x" * KIB)
            await asyncio.sleep(1)
            sizes = [w.length for _, name, r in files.storage.calls if name == "Write" for w in r.writes]  # type: ignore[attr-defined]
            assert sizes == [64 * KIB] * 3
            assert file.has_unsent_writes
        assert await fs.read_file("/a") == b"x" * 200 * KIB

    play(scene, write_buffer_bytes=64 * KIB)


def test_large_writes_go_straight_from_the_callers_memory() -> None:
    content = np.arange(300 * KIB, dtype=np.uint8)
    seen: list[Any] = []

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        real = files.storage.call

        async def call(address: str, method: Any, request: Any, **more: Any) -> Any:
            seen.extend(more.get("payload", ()))
            return await real(address, method, request, **more)

        files.storage.call = call  # type: ignore[method-assign]
        async with await fs.open("/a", "wb") as file:
            await file.write(content)

    play(scene, write_buffer_bytes=64 * KIB)
    shared = [piece for piece in seen if np.shares_memory(np.frombuffer(piece, np.uint8), content)]
    assert sum(map(len, shared)) == 256 * KIB


def test_append_and_exclusive_and_update_modes() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"one")
        async with await fs.open("/a", "ab") as file:
            assert file.tell() == 3
            await file.write(b"two")
            file.seek(0)
            await file.write(b"three")
        assert await fs.read_file("/a") == b"onetwothree"
        with pytest.raises(FileExistsError):
            await fs.open("/a", "xb")
        async with await fs.open("/a", "r+b") as file:
            assert await file.read(3) == b"one"
            await file.write(b"TWO")
            assert await file.read(2) == b"th"
            file.seek(0)
            assert await file.read() == b"oneTWOthree"
        with pytest.raises(NotFound):
            await fs.open("/none", "r+b")
        async with await fs.open("/a", "w+b") as file:
            assert await file.read() == b""

    play(scene)


def test_holes_read_as_zeros() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "wb") as file:
            file.seek(200 * KIB)
            await file.write(b"end")
        assert await fs.read_file("/a") == bytes(200 * KIB) + b"end"
        views = await fs.read_batch([("/a", 0, 100), ("/a", 64 * KIB + 5, 10), ("/a", 200 * KIB, 10)])
        assert [bytes(view) for view in views] == [bytes(100), bytes(10), b"end"]

    play(scene)


def test_another_clients_changes_of_the_length_are_seen() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x" * 100)
        reader = await fs.open("/a")
        assert len(await reader.read()) == 100
        async with await fs.open("/a", "ab") as writer:
            await writer.write(b"more")
        assert await reader.read() == b"more"
        async with await fs.open("/a", "r+b") as writer:
            await writer.truncate(50)
        view = memoryview(bytearray(100))
        assert await reader.handle.read_into(0, view) == 50
        assert [len(view) for view in await fs.read_batch([(reader, 0, 100)])] == [50]

    play(scene)


def test_truncate_inside_and_beyond() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "w+b") as file:
            await file.write(b"y" * 150 * KIB)
            assert await file.truncate(10) == 10
            assert file.tell() == 150 * KIB
            file.seek(0)
            assert await file.read() == b"y" * 10
            await file.truncate(70 * KIB)
            file.seek(0)
            assert await file.read() == b"y" * 10 + bytes(70 * KIB - 10)
        assert len(await fs.read_file("/a")) == 70 * KIB

    play(scene)


def test_flush_reports_the_length_to_others() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"abc")
        assert (await fs.read_file("/a")) == b""
        await file.flush()
        assert (await fs.read_file("/a")) == b"abc"
        calls = len(files.peers.meta_calls)
        await file.flush()
        assert len(files.peers.meta_calls) == calls, "nothing new to settle"
        await file.close()
        await file.close()

    play(scene)


def test_an_unknown_outcome_makes_the_length_exact_at_close() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        files.storage.after = [lambda *_: ConnectionLost()] * 10_000
        await file.write(b"abc")
        with pytest.raises(OutcomeUnknown):
            await file.flush()
        files.storage.after = []
        await file.close()
        closing = [request for _, name, request in files.peers.meta_calls if name == "Close"]
        assert closing[-1].exact
        assert await fs.read_file("/a") == b"abc"

    play(scene, timeout_s=0.05)


def test_what_could_not_be_sent_is_not_forgotten() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "wb")
        await file.write(b"abc")
        files.storage.before = [lambda *_: NoSpace()]
        with pytest.raises(NoSpace):
            await file.flush()
        await file.close()
        assert await fs.read_file("/a") == b"abc"

    play(scene)


def test_misuse_is_refused_before_anything_is_sent() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"x")
        reader, writer = await fs.open("/a"), await fs.open("/b", "wb")
        sent = len(files.storage.calls) + len(files.peers.meta_calls)
        for wrong in (-1, 2**63):
            with pytest.raises((InvalidArgument, FileTooLarge)):
                await fs.write_batch([(writer, wrong, b"x")])
            with pytest.raises((InvalidArgument, FileTooLarge)):
                await writer.truncate(wrong)
        with pytest.raises(InvalidArgument):
            await fs.read_batch([(reader, -1, 1)])
        with pytest.raises(InvalidArgument):
            await fs.read_batch([(reader, 0, -1)])
        with pytest.raises(InvalidArgument):
            await fs.read_batch([(reader, 0, 10)], into=bytearray(9))
        with pytest.raises(InvalidArgument):
            await fs.read_batch([(reader, 0, 10)], into=bytes(10))
        with pytest.raises(InvalidArgument):
            reader.seek(-1)
        with pytest.raises(InvalidArgument):
            reader.seek(0, 7)
        with pytest.raises(io.UnsupportedOperation):
            await reader.write(b"x")
        with pytest.raises(io.UnsupportedOperation):
            await writer.read()
        with pytest.raises(io.UnsupportedOperation):
            await fs.read_batch([(writer, 0, 1)])
        with pytest.raises(io.UnsupportedOperation):
            await fs.write_batch([(reader, 0, b"x")])
        with pytest.raises(InvalidArgument, match="contiguous"):
            await writer.write(np.zeros((4, 4), np.uint8)[:, 1])
        with pytest.raises(InvalidArgument):
            await writer.write("text")
        writer.seek(1 << 50)
        with pytest.raises(FileTooLarge):
            await writer.write(b"x")
        assert len(files.storage.calls) + len(files.peers.meta_calls) == sent
        await reader.close()
        with pytest.raises(ValueError, match="closed"):
            await reader.read()
        with pytest.raises(ValueError, match="closed"):
            await fs.read_batch([(reader, 0, 1)])
        with pytest.raises(InvalidArgument):
            await fs.open("/a", "r")
        with pytest.raises(NotFound, match="/none"):
            await fs.read_batch([("/none", 0, 1)])

    play(scene)


def test_a_file_left_to_the_parent_of_a_fork() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        file = await fs.open("/a", "w+b")
        await file.write(b"abc")
        await file.flush()
        await file.write(b"def")
        file.drop_after_fork()
        file.handle.rebind_after_fork(files.context)
        file.seek(0)
        assert await file.read() == b"abc"
        with pytest.raises(SessionLost):
            await file.write(b"x")

    play(scene)


def test_sequential_small_reads_are_read_ahead_and_random_ones_are_not() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        content = bytes(range(250)) * 1200
        await fs.write_file("/a", content)
        file = await fs.open("/a")
        got = b""
        while part := await file.read(1000):
            got += part
        assert got == content
        assert len(files.reads()) < 20
        before = len(files.reads())
        for place in (200_000, 100_000, 5):
            file.seek(place)
            assert await file.read(10) == content[place : place + 10]
        asked = [sum(request.length) for request in files.reads()[before:]]
        assert asked == [10, 10, 10]

    play(scene)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 300_000), st.integers(0, 150_000)),
        st.tuples(st.just("small"), st.integers(0, 300_000), st.integers(0, 50)),
        st.tuples(st.just("read"), st.integers(0, 400_000), st.integers(0, 200_000)),
        st.tuples(st.just("truncate"), st.integers(0, 300_000), st.just(0)),
        st.tuples(st.just("batch"), st.integers(0, 300_000), st.integers(0, 100_000)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("on"), st.just(0), st.integers(0, 5_000)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
def test_a_file_behaves_like_bytes_in_memory(operations: list[tuple[str, int, int]]) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        model = bytearray()
        file = await fs.open("/a", "w+b")
        for step, (kind, at, size) in enumerate(operations):
            await _step(fs, file, model, kind, at, size, step)
            assert file.length == len(model)
        await file.close()
        assert await fs.read_file("/a") == model

    play(scene, write_buffer_bytes=64 * KIB, read_ahead_bytes=8 * KIB)


async def _step(
    fs: AsyncFileSystem, file: AsyncFile, model: bytearray, kind: str, at: int, size: int, step: int
) -> None:
    data = bytes([step + 1]) * size
    if kind in ("write", "small", "on"):
        at = file.tell() if kind == "on" else file.seek(at)
        await file.write(data)
        _put(model, at, data)
    elif kind == "read":
        file.seek(at)
        assert await file.read(size) == model[at : at + size]
    elif kind == "truncate":
        await file.truncate(at)
        del model[at:]
        model.extend(bytes(at - len(model)))
    elif kind == "batch":
        await fs.write_batch([(file, at, data), (file, at + 7, b"overlap")])
        _put(model, at, data)
        _put(model, at + 7, b"overlap")
        rows = [(file, at, size), (file, max(0, at - 10), 30), (file, at + 5, 0)]
        views = await fs.read_batch(rows)
        assert [bytes(view) for view in views] == [bytes(model[a : a + n]) for _, a, n in rows]
    else:
        await file.flush()


def _put(model: bytearray, at: int, data: bytes) -> None:
    if data:
        model.extend(bytes(max(0, at - len(model))))
        model[at : at + len(data)] = data


@pytest.mark.parametrize("flushed", [False, True])
def test_a_seek_after_an_append_stays_when_the_append_is_sent(flushed: bool) -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"0123")
        async with await fs.open("/a", "ab+") as file, await fs.open("/a", "ab") as other:
            await file.write(b"45")
            file.seek(1)
            if flushed:
                await file.flush()
            assert (file.tell(), await file.read(), file.tell()) == (1, b"12345", 6)
            await file.write(b"78")
            await other.write(b"6")
            await other.flush()
            await file.flush()
            assert file.tell() == 9, "behind what it has appended, wherever that lies"
            file.seek(0)
            assert await file.readline() == b"012345678"

    play(scene)


def test_nothing_that_is_appended_moves_nothing() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "ab+") as file:
            await file.write(b"012")
            for place in (1, 3, 7):
                file.seek(place)
                assert (await file.write(b""), file.tell()) == (0, place)
            await file.write(b"3")
        assert await fs.read_file("/a") == b"0123"

    play(scene)


def test_a_batch_reads_holes_beside_the_appends_of_its_own_file() -> None:
    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        async with await fs.open("/a", "ab+") as file:
            await file.write(bytes(range(256)) * 20 * KIB)  # it is sent at once, and reported with the next flush
            await file.truncate(6 * KIB * KIB)
            (view,) = await fs.read_batch([(file, 5 * KIB * KIB - 2, 10)])
            assert bytes(view) == b"\xfe\xff" + bytes(8)

    play(scene, chunk_bytes=64 * KIB)


@pytest.mark.parametrize("has_quota", [False, True])
def test_a_file_that_was_appended_to_and_made_longer_is_read_by_others(
    has_quota: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a quota the write reports its length, and not that it was the end of an append."""
    monkeypatch.setattr(handles, "_QUOTA_SYNC_BYTES", 4 * KIB * KIB)

    async def scene(files: MemoryFiles, fs: AsyncFileSystem) -> None:
        await fs.write_file("/a", b"")
        files.meta.files[b"a"].by_user = has_quota
        async with await fs.open("/a", "ab+") as file:
            await file.write(b"x" * 5 * KIB * KIB)
            await file.truncate(6 * KIB * KIB)
            assert await fs.read_file("/a") == b"x" * 5 * KIB * KIB + bytes(KIB * KIB)

    play(scene, chunk_bytes=64 * KIB)


def test_appends_of_several_writers_lie_one_behind_the_other() -> None:
    async def run() -> None:
        files = MemoryFiles()
        fs = AsyncFileSystem(files.context)
        pieces = [bytes([number]) * size for number, size in enumerate((10, 3 << 20, 7, 5 << 20, 1))]
        opened = [await fs.open("/log", "ab") for _ in pieces]
        for file, piece in zip(opened, pieces, strict=True):
            await file.write(piece)
        for file in reversed(opened):
            await file.close()
        whole = await fs.read_file("/log")
        assert len(whole) == sum(map(len, pieces))
        for piece in pieces:
            assert piece in whole

    run_virtual(run())


@pytest.mark.parametrize("failures", [0, 3])
def test_another_thread_finds_the_end_of_all_written_bytes_at_any_moment(failures: int) -> None:
    """A blocking program seeks and asks for the end in its own thread, while the loop sends in the background."""
    written, seen = 0, [0]
    files = MemoryFiles()
    files.storage.before = [lambda *_: NoSpace("full")] * failures

    async def run() -> None:
        nonlocal written
        async with await AsyncFileSystem(files.context).open("/a", "wb") as file:

            def look(frame: Any, event: str, _: object) -> Any:
                """Is called before each line of the client: there another thread may take over."""
                if event == "line":
                    sys.settrace(None)
                    seen.append(min(0, file.length - written))
                    sys.settrace(look)
                return look if "threefs_client/data/" in frame.f_code.co_filename else None

            sys.settrace(look)
            try:
                while written < 12 << 20:
                    try:
                        await file.write(bytes(1 << 20))
                        written += 1 << 20
                    except NoSpace:
                        pass  # of the background
                    await asyncio.sleep(0.1)
            finally:
                sys.settrace(None)

    run_virtual(run())
    assert len(seen) > 1000 and not any(seen)
