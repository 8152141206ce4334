import asyncio
import contextlib
import gc
import io
import sys
import threading
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from threefs_client import context, exit_flush
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.blocking import filesystem
from threefs_client.blocking.file import File
from threefs_client.blocking.filesystem import FileSystem
from threefs_client.context import ClientContext
from threefs_client.exit_flush import AsyncOpenFiles, OpenFiles

from tests.harness.children import in_child
from tests.harness.memory_cluster import MemoryFiles
from threefs.env import loop_thread
from threefs.errors import NoSpace


class Left:
    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.closed = 0
        self._error = error

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1
        if self._error is not None:
            raise self._error

    def closing(self, locks: contextlib.ExitStack, wait_s: float) -> tuple[Coroutine[Any, Any, None], bool]:
        return self.close(), True


def test_all_are_closed_whatever_becomes_of_one() -> None:
    files, lost = OpenFiles(), ValueError("lost")
    left = [Left("a"), Left("b", lost), Left("c")]
    for each in left:
        files.add(each)
    assert files.close_all() is lost and [each.closed for each in left] == [1, 1, 1]


def test_a_text_file_that_its_program_has_closed_is_passed_over() -> None:
    files, text = OpenFiles(), io.TextIOWrapper(io.BytesIO())
    files.add(text)
    text.close()
    assert files.close_all() is None


def test_a_call_that_does_not_end_keeps_no_text_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program whose daemon thread waited for a lock on it never ended."""
    monkeypatch.setattr(exit_flush, "_BUSY_S", 0.1)
    memory, over, begun = MemoryFiles(), threading.Event(), threading.Event()
    fs = _blocking(memory)
    busy, free = fs.open("/busy", "w"), fs.open("/free", "w")

    async def lock(**_: object) -> None:
        begun.set()
        while not over.is_set():
            await asyncio.sleep(0.001)

    raw = cast(File, busy.buffer)
    monkeypatch.setattr(raw.threefs_file(), "lock", lock)
    thread = threading.Thread(target=raw.lock, daemon=True)
    thread.start()
    assert begun.wait(10)
    busy.write("lost")
    free.write("stored")
    try:
        assert isinstance(fs._unclosed.close_all(), TimeoutError)
        assert busy.closed and free.closed and fs.read_file("/free") == b"stored"
    finally:
        over.set()
        thread.join()


def test_they_are_closed_at_the_same_time() -> None:
    """One after the other, hundreds of files would take longer than the end of a program waits."""
    waiting = [0, 0]  # now, at most

    class Slow(Left):
        async def close(self) -> None:
            waiting[0] += 1
            waiting[1] = max(waiting)
            await asyncio.sleep(0.01)
            waiting[0] -= 1

    files, left = OpenFiles(), [Slow(str(number)) for number in range(100)]
    for each in left:
        files.add(each)
    assert files.close_all() is None and waiting == [0, 100]

    async def in_a_loop() -> None:
        both = AsyncOpenFiles()
        for each in left:
            both.add(each)
        await both.close_with_loop()
        await both.close_all()

    waiting[1] = 0
    asyncio.run(in_a_loop())
    assert waiting == [0, 100]


def test_a_forgotten_file_object_is_not_kept() -> None:
    files = OpenFiles()
    files.add(Left("a", ValueError("never")))
    gc.collect()
    assert files.close_all() is None


@pytest.mark.parametrize("whole", [False, True], ids=["file", "connection"])
def test_a_file_that_the_collector_has_found_is_waited_for(whole: bool) -> None:
    """Its close was broken off at the end of the program, without a word."""
    memory = MemoryFiles()
    memory.storage.pause_s = lambda: 0.3
    fs = _blocking(memory)
    _drop_in_a_cycle(fs.open("/a", "wb"), fs if whole else None)
    if whole:
        del fs
    loop_thread.run(_collect())
    exit_flush._close_all()
    assert memory.meta.files[b"a"].length == len(b"not lost")


def test_a_file_that_the_collector_has_found_and_that_cannot_be_closed_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryFiles()
    memory.storage.before = [lambda *_: NoSpace("full")] * 5
    fs = _blocking(memory)
    _drop_in_a_cycle(fs.open("/a", "wb"))
    loop_thread.run(_collect())
    fs._unclosed.close_all()
    (record,) = [one for one in caplog.records if "could not be closed" in one.getMessage()]
    assert "/a" in record.getMessage() and "full" in record.getMessage()


def _blocking(memory: MemoryFiles) -> FileSystem:
    fs = FileSystem(("manager:1",), memory.options)
    fs._connected = AsyncFileSystem(memory.context)
    return fs


def _drop_in_a_cycle(file: File, *others: object) -> None:
    file.write(b"not lost")
    cycle: list[object] = [file, *others]
    cycle.append(cycle)


async def _collect() -> None:
    """The garbage collector runs where the loop runs."""
    gc.collect()


@pytest.mark.slow
def test_other_threads_may_open_files_at_the_same_time() -> None:
    files, left, stop = OpenFiles(), [Left(str(number)) for number in range(2000)], threading.Event()
    for each in left:
        files.add(each)

    def open_others() -> None:
        while not stop.is_set():
            files.add(Left("other"))

    before, thread = sys.getswitchinterval(), threading.Thread(target=open_others)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(20):
            assert files.close_all() is None
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert {each.closed for each in left} == {20}


def test_a_forked_child_leaves_its_parents_files() -> None:
    files, left = OpenFiles(), Left("a")
    files.add(left)

    def child() -> None:
        assert files.close_all() is None and left.closed == 0

    in_child(child)
    files.close_all()
    assert left.closed == 1


def test_the_end_of_a_loop_closes_what_is_open() -> None:
    left = Left("a")

    async def program() -> None:
        files = AsyncOpenFiles()
        await files.close_with_loop()
        files.add(left)
        kept.append(files)

    kept: list[AsyncOpenFiles] = []
    asyncio.run(program())
    assert left.closed == 1


async def test_the_end_of_a_connection_closes_what_its_program_has_forgotten() -> None:
    memory = MemoryFiles(64 << 10)
    fs = AsyncFileSystem(memory.context)
    await fs.open_files.close_with_loop()
    for name in ("/a", "/b", "/c"):
        file = await fs.open(name, "wb")
        await file.write(b"not lost")
        if name == "/c":
            await file.close()
    del file
    gc.collect()
    assert len(fs.open_files._files) == 2, "a closed file is not kept"
    await fs.open_files.close_all()
    assert not fs.open_files._files
    other = AsyncFileSystem(memory.context)
    assert [await other.read_file(name) for name in ("/a", "/b", "/c")] == [b"not lost"] * 3


async def test_the_end_of_a_connection_closes_what_is_open_and_tells_the_first_error() -> None:
    files, left = AsyncOpenFiles(), [Left("a", ValueError("lost")), Left("b")]
    await files.close_with_loop()
    for each in left:
        files.add(each)
    with pytest.raises(ValueError, match="lost"):
        await files.close_all()
    await files.close_all()
    assert [each.closed for each in left] == [1, 1]


@pytest.mark.parametrize("user", [False, True], ids=["connection", "another user"])
@pytest.mark.parametrize("end", ["program", "connection"])
def test_asyncio_files_of_a_blocking_connection_are_closed_with_it(
    monkeypatch: pytest.MonkeyPatch, end: str, user: bool
) -> None:
    """Nobody closed those that coroutines of fsspec had left open: their bytes were lost, and their sessions stayed."""
    memory = MemoryFiles()
    fs = _connecting(memory, monkeypatch)
    loop_thread.run(_leave_open(fs.acting_as(7, 7) if user else fs))
    if end == "connection":
        fs.close()
    else:
        del fs
        gc.collect()
        in_child(exit_flush._close_all)
        assert memory.meta.files[b"a"].length == 0, "a forked child leaves it"
        exit_flush._close_all()
    assert memory.meta.files[b"a"].length == len(b"not lost")
    assert not memory.context.lease._holders, "no session stays"


@pytest.mark.parametrize("user", [False, True], ids=["connection", "another user"])
def test_a_connection_is_seen_by_other_threads_once_its_files_are_closed_with_it(
    monkeypatch: pytest.MonkeyPatch, user: bool
) -> None:
    """A file that another thread opened just then was closed by nobody."""
    base = _connecting(MemoryFiles(), monkeypatch)
    fs = base.acting_as(7, 7) if user else base
    seen: list[AsyncOpenFiles] = []

    class Watched(AsyncFileSystem):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if fs._connected is not None:
                seen.append(fs._connected.open_files)

    monkeypatch.setattr(filesystem, "AsyncFileSystem", Watched)
    closes = AsyncOpenFiles.close_with_program

    def close_with_program(files: AsyncOpenFiles) -> None:
        assert fs._connected is None
        closes(files)

    monkeypatch.setattr(AsyncOpenFiles, "close_with_program", close_with_program)
    files = fs._async().open_files
    assert not seen and files is base._async().open_files
    fs.close()
    base.close()


def test_a_connection_that_its_program_drops_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, before = MemoryFiles(), {*exit_flush._ON_LOOP_THREAD}
    fs = _connecting(memory, monkeypatch)
    fs._async()
    assert {*exit_flush._ON_LOOP_THREAD} == before
    loop_thread.run(_leave_open(fs))
    assert len(exit_flush._ON_LOOP_THREAD) == len(before) + 1
    exit_flush._close_all()
    assert not exit_flush._ON_LOOP_THREAD and memory.meta.files[b"a"].length == len(b"not lost")


def test_files_of_a_connection_may_be_opened_while_the_program_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that go on get no error."""
    fs = _connecting(MemoryFiles(), monkeypatch)
    loop_thread.run(_leave_open(fs))
    exit_flush._close_all()
    fs.write_file("/b", b"another")
    assert fs.read_file("/a") == b"not lost"
    fs.close()


def test_what_closes_a_file_may_be_chosen() -> None:
    left, other, closed = Left("a"), Left("b"), Left("c")

    async def program() -> None:
        files = AsyncOpenFiles()
        files.add(left)
        files.close_by(left, other.close)
        files.close_by(closed, closed.close)
        await files.close_all()

    asyncio.run(program())
    assert (left.closed, other.closed, closed.closed) == (0, 1, 0)


def _connecting(memory: MemoryFiles, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    async def connect(*_: object) -> ClientContext:
        return memory.context

    async def close() -> None:
        pass

    monkeypatch.setattr(memory.cluster, "close", close, raising=False)
    monkeypatch.setattr(context, "connect", connect)
    return FileSystem(("manager:1",), memory.options)


async def _leave_open(fs: FileSystem) -> None:
    file = await (await fs.connected()).open("/a", "ab")
    await file.write(b"not lost")
