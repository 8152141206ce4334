import asyncio
import gc
import io
import pickle
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import cast

import pytest
from threefs_client import context
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.blocking.file import File
from threefs_client.blocking.filesystem import FileSystem
from threefs_client.context import ClientContext

from tests.harness.children import in_child
from tests.harness.memory_cluster import MemoryFiles, MemoryPeers
from threefs.env import loop_thread


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def fs(files: MemoryFiles) -> Iterator[FileSystem]:
    made = FileSystem(("manager:1",), files.options)
    made._connected = AsyncFileSystem(files.context)
    yield made


def binary(fs: FileSystem, path: str, mode: str) -> File:
    return cast(File, fs.open(path, mode))


def test_it_is_a_standard_stream(fs: FileSystem) -> None:
    file = binary(fs, "/a", "w+b")
    assert isinstance(file, io.RawIOBase)
    assert (file.readable(), file.writable(), file.seekable(), file.closed) == (True, True, True, False)
    assert (file.name, file.mode, file.length) == ("/a", "wb+", 0)
    assert file.write(b"one\ntwo\nthree") == 13
    assert file.length == 13
    assert file.seek(0) == file.tell() == 0
    assert file.readline() == b"one\n"
    assert file.peek()[:3] == b"two"
    assert list(file) == [b"two\n", b"three"]
    file.seek(-5, io.SEEK_END)
    assert file.read1(2) == b"th"
    assert file.readall() == b"ree"
    buffer = bytearray(5)
    file.seek(4)
    assert file.readinto(buffer) == 5
    assert buffer == b"two\nt"
    assert file.truncate(3) == 3
    file.writelines([b"x", b"y"])
    file.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


def test_small_reads_and_writes_need_no_call(fs: FileSystem, files: MemoryFiles) -> None:
    with binary(fs, "/a", "wb") as file:
        for _ in range(100):
            file.write(b"0123456789")
        assert not files.storage.calls
    with binary(fs, "/a", "rb") as file:
        while file.read(7):
            pass
    assert len(files.reads()) == 1


def test_buffered_wrappers_work_on_it(fs: FileSystem) -> None:
    with io.BufferedWriter(binary(fs, "/a", "wb")) as writer:
        writer.write(b"line\n" * 1000)
    with io.TextIOWrapper(io.BufferedReader(binary(fs, "/a", "rb"))) as reader:
        assert sum(1 for _ in reader) == 1000


def test_a_forgotten_file_is_closed_by_the_garbage_collector(fs: FileSystem, files: MemoryFiles) -> None:
    file = binary(fs, "/a", "wb")
    file.write(b"not lost")
    del file
    gc.collect()
    assert fs.read_file("/a") == b"not lost"


class Cycle:
    """Only the garbage collector frees it."""

    def __init__(self, *files: object) -> None:
        self.itself = self
        self.files = files


async def collect() -> None:
    """The collector runs where the loop runs."""
    gc.collect()


def test_the_collector_gives_up_a_file_that_was_read_once(fs: FileSystem, files: MemoryFiles) -> None:
    """The second time was a KeyError, which ended the renewals of the lease: other files lost their sessions."""
    fs.write_file("/a", b"x")
    used, lease = binary(fs, "/a", "rb"), files.context.lease
    Cycle(binary(fs, "/a", "rb"), binary(fs, "/a", "rb"))
    loop_thread.run(collect())
    loop_thread.run(asyncio.sleep(0))  # after the files are closed
    lease._close_forgotten()
    assert [opens for _, opens in lease._read_opens.values()] == [1]
    used.close()


@pytest.mark.parametrize("text", [False, True])
def test_the_collector_closes_an_inherited_file_in_the_middle_of_a_connect(
    fs: FileSystem, monkeypatch: pytest.MonkeyPatch, text: bool
) -> None:
    """The loop of the forked child waited for the lock of the thread that was connecting, and that waited for it."""
    fs.write_file("/a", b"content")
    raw = binary(fs, "/a", "rb")

    async def connect(*_: object) -> ClientContext:
        gc.collect()
        return MemoryFiles().context

    def child() -> None:
        assert not fs.exists("/a"), "it has another cluster"
        assert kept() is None and raw.closed == text
        if not text:
            assert raw.flush() is None and not raw.closed
            raw.close()
        with pytest.raises(ValueError, match="closed"):
            raw.flush()

    monkeypatch.setattr(context, "connect", connect)
    monkeypatch.setattr(MemoryPeers, "abandon", lambda self: None, raising=False)
    gc.disable()
    try:
        kept = weakref.ref(Cycle(io.TextIOWrapper(raw) if text else binary(fs, "/a", "rb")))
        assert in_child(child, 10) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["read", "batch", "copy", "holes"])
def test_a_forked_child_keeps_a_file_that_it_reads(fs: FileSystem, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Batches and copies did not: once the parent had closed the file, it was gone if somebody removed it."""
    fs.write_file("/a", b"content")
    file = binary(fs, "/a", "rb")

    async def connect(*_: object) -> ClientContext:
        return MemoryFiles().context

    def child() -> None:
        fs.write_file("/a", b"content")  # it has another cluster
        if how == "read":
            assert file.read() == b"content"
        elif how == "batch":
            assert bytes(fs.read_batch([(file, 0, 7)])[0]) == b"content"
        elif how == "copy":
            with binary(fs, "/b", "wb") as copy:
                assert fs.copy_range(file, 0, copy, 0, 7) == 7
        else:
            assert file.seek_data(0) == 0
        lease = fs._context().lease
        assert list(lease._read_opens) == [file.inode]
        file.close()
        assert not lease._read_opens

    monkeypatch.setattr(context, "connect", connect)
    monkeypatch.setattr(MemoryPeers, "abandon", lambda self: None, raising=False)
    assert in_child(child, 30) == 0
    file.close()


def test_a_call_in_the_middle_of_another_one_of_the_thread_is_an_error(
    fs: FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler that wrote to the file to which its program was just writing waited for ever."""
    file, errors = binary(fs, "/log", "wb"), list[str]()
    handle = file.threefs_file().handle
    sync, main = handle.sync, threading.get_ident()

    async def sync_while_a_signal_comes() -> None:
        while not errors:
            await asyncio.sleep(0.1)  # a signal that comes just before the thread waits does not wake it
            signal.pthread_kill(main, signal.SIGUSR1)
        await sync()

    def handle_signal(*_: object) -> None:
        for call in (lambda: file.write(b"terminated"), file.flush, file.close):
            with pytest.raises(RuntimeError, match="reentrant call of file '/log'") as caught:
                call()
            errors.append(str(caught.value))

    before = signal.signal(signal.SIGUSR1, handle_signal)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(handle, "sync", sync_while_a_signal_comes)
            file.write(b"a line\n")
            file.flush()
        file.write(b"another one\n")
        file.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert fs.read_file("/log") == b"a line\nanother one\n"


def test_it_is_not_pickled(fs: FileSystem) -> None:
    with binary(fs, "/a", "wb") as file, pytest.raises(TypeError, match="pickle the file system"):
        pickle.dumps(file)


def test_leaving_with_an_error_still_closes(fs: FileSystem) -> None:
    with pytest.raises(KeyError), binary(fs, "/a", "wb") as file:
        file.write(b"abc")
        raise KeyError
    assert fs.read_file("/a") == b"abc"
