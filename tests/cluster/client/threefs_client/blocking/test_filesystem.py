import asyncio
import io
import pickle
import signal
import threading
import uuid
from typing import Any, assert_type

import pytest
from threefs_client import context
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.blocking.file import File
from threefs_client.blocking.filesystem import FileSystem
from threefs_client.context import ClientContext
from threefs_client.options import Options

import threefs
from tests.harness.memory_cluster import MemoryFiles
from threefs.errors import InvalidArgument, NotFound


def blocking(files: MemoryFiles) -> FileSystem:
    fs = FileSystem(("manager:1",), files.options)
    fs._connected = AsyncFileSystem(files.context)
    return fs


def test_connect_is_found_where_users_look() -> None:
    assert callable(threefs.connect)
    assert callable(threefs.connect_async)
    with pytest.raises(AttributeError):
        threefs.disconnect  # noqa: B018
    with pytest.raises(InvalidArgument):
        threefs.connect("nowhere")
    with pytest.raises(InvalidArgument, match="unknown option"):
        threefs.connect("threefs://a:1", colour="red")


def test_calls_block_with_and_without_a_loop_and_from_many_threads() -> None:
    fs = blocking(MemoryFiles())
    fs.write_file("/a", b"content")

    async def inside() -> bytes:
        return fs.read_file("/a")

    assert asyncio.run(inside()) == b"content"
    results = list[bytes]()
    threads = [threading.Thread(target=lambda: results.append(fs.read_file("/a"))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"content"] * 10
    assert [bytes(view) for view in fs.read_batch([("/a", 1, 3)])] == [b"ont"]
    with pytest.raises(NotFound):
        fs.read_file("/none")


def test_pickles_hold_address_and_options_and_no_secret() -> None:
    fs = FileSystem(("a:1", "b:2"), Options(token="hush", timeout_s=7.0))
    data = pickle.dumps(fs)
    assert b"hush" not in data
    other = pickle.loads(data)  # noqa: S301  (the test's own)
    assert other.address == fs.address == "threefs://a:1,b:2"
    assert other._options.timeout_s == 7.0
    assert other._connected is None


def test_a_closed_object_stays_closed() -> None:
    fs = blocking(MemoryFiles())
    closed = list[bool]()

    async def note() -> None:
        closed.append(True)

    fs._connected.context.cluster.close = note  # type: ignore[union-attr,method-assign]
    fs.close()
    fs.close()
    assert closed == [True]
    with pytest.raises(ValueError, match="closed"):
        fs.exists("/a")


def test_a_call_of_a_signal_handler_while_its_thread_connects_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the connection, for ever, as that waited for the handler."""
    fs, errors = FileSystem(("manager:1",), Options()), list[str]()
    main = threading.get_ident()

    async def connect(*_: object) -> ClientContext:
        while not errors:
            await asyncio.sleep(0.1)  # a signal that comes just before the thread waits does not wake it
            signal.pthread_kill(main, signal.SIGUSR1)
        return MemoryFiles().context

    def handle_signal(*_: object) -> None:
        for call in (lambda: fs.exists("/a"), fs.close):
            with pytest.raises(RuntimeError, match="reentrant call") as caught:
                call()
            errors.append(str(caught.value))

    monkeypatch.setattr(context, "connect", connect)
    before = signal.signal(signal.SIGUSR1, handle_signal)
    try:
        assert not fs.exists("/a") and not fs.closed
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_modes_and_encodings() -> None:
    fs = blocking(MemoryFiles())
    with fs.open("/t", "w", encoding="latin-1", newline="\r\n") as file:
        file.write("ä\n")
    assert fs.read_file("/t") == b"\xe4\r\n"
    with pytest.raises(InvalidArgument):
        fs.open("/t", "rb", encoding="latin-1")
    with pytest.raises(InvalidArgument):
        fs.open("/t", "rb", chunk_bytes=7)


def test_the_mode_decides_the_type_of_the_file() -> None:
    fs = blocking(MemoryFiles())
    with fs.open("/t", "wb") as written:
        assert_type(written, File)
    with fs.open("/t") as read:
        assert_type(read, File)
        assert_type(read.read(), bytes)
    with fs.open("/t", "r") as text:
        assert_type(text, io.TextIOWrapper)
        assert_type(text.read(), str)
    assert isinstance(written, File) and isinstance(read, File) and isinstance(text, io.TextIOWrapper)
    mode: str = "a+b"
    with fs.open("/t", mode) as unknown:
        assert_type(unknown, Any)


def test_acting_as_a_user_lends_the_connection() -> None:
    fs = blocking(MemoryFiles())
    user = fs.acting_as(1000, 1001, [5])
    assert user._context() is fs._context()
    caller = user.acting_as(7, 7)._async().caller
    assert caller is not None and caller.uid == 7, "as the root of both may"
    user.write_file("/a", b"abc")
    user.close()
    with pytest.raises(ValueError, match="closed"):
        user.exists("/a")
    assert fs.read_file("/a") == b"abc"
    again = pickle.loads(pickle.dumps(fs.acting_as(1000, 1001, [5])))  # noqa: S301  (the test's own)
    assert (again._caller.uid, again._caller.gid, list(again._caller.groups)) == (1000, 1001, [5])
    with pytest.raises(InvalidArgument):
        fs.acting_as(-1, 0)


def test_what_users_import_is_listed() -> None:
    assert {"connect", "connect_async", "__version__"} <= set(dir(threefs))


def test_the_machinery_is_not_among_the_public_names(fs: FileSystem) -> None:
    public = {name for name in dir(fs) if not name.startswith("_")}
    assert {"open", "read_batch", "stat"} <= public
    assert not {"run", "submit", "link", "inside_loop"} & public


def test_quotas_of_blocking_programs(fs: FileSystem) -> None:
    path = f"/administration/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    fs.quotas.set(path, limit_bytes=1 << 40)
    found = fs.quotas.show(path)
    assert found is not None and (found.path, found.limit_bytes) == (path, 1 << 40)
    assert path in {quota.path for quota in fs.quotas.list()}
    fs.quotas.clear(path)
    assert fs.quotas.show(path) is None


def test_the_trash_of_blocking_programs(fs: FileSystem) -> None:
    path = f"/administration/{uuid.uuid4().hex}"
    fs.mkdir(path, parents=True)
    assert fs.trash.set(path, 3600).trash_s == fs.stat(path).trash_s == 3600
    fs.write_file(f"{path}/a", b"abc")
    fs.remove(f"{path}/a")
    (item,) = [item for item in fs.trash.list() if item.original == f"{path}/a"]
    assert fs.trash.restore(item.path) == f"{path}/a"
    assert fs.read_file(f"{path}/a") == b"abc"
    assert fs.trash.set(path, None).trash_s is None
    assert fs.trash.empty(uid=4_000_000_000) == 0
