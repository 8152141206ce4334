"""The blocking file system: it delegates to the asyncio one on a background loop. The caller may run a loop itself."""

import contextlib
import io
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from threefs.env import loop_thread
from threefs.env.worker_threads import run_in_thread
from threefs.errors import InvalidArgument, ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_client import addresses, context, modes, options, paths
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.blocking.file import File
from threefs_client.blocking.wrappers import blocking, blocking_iterator, documented_by
from threefs_client.context import ClientContext
from threefs_client.credentials import caller_of
from threefs_client.exit_flush import OpenFiles
from threefs_client.metadata.namespace import checked_permissions, requested_layout
from threefs_client.metadata.quotas import Quotas
from threefs_client.metadata.trash import Trash
from threefs_client.modes import BinaryMode, TextMode
from threefs_client.options import Options

T = TypeVar("T")
Path = paths.Path


def connect(url: str, **chosen: Any) -> "FileSystem":
    """Connect to the cluster at "threefs://host:port". Keyword arguments are the fields of Options.

    Raises InvalidArgument for a bad address or option, Unavailable when no manager answers there.
    """
    filesystem = FileSystem(addresses.parse(url), options.make(**chosen))
    filesystem._context()
    return filesystem


class FileSystem:
    """All operations, from any number of threads. Paths are absolute, from the root of the cluster.

    A forked child, and a process that unpickles it, connects again on first use, under an identity of its own. The key
    is not pickled: another process finds it by itself (`keyring`).

    A call that a signal handler makes while its thread connects raises RuntimeError.
    """

    def __init__(
        self,
        managers: tuple[str, ...],
        options: Options,
        *,
        caller: pb.Caller | None = None,
        base: "FileSystem | None" = None,
    ) -> None:
        """With `base`, this object uses the connection of another one."""
        self._managers = managers
        self._options = options
        self._caller = caller
        self._base = base
        self._start()

    def _start(self, *, closed: bool = False) -> None:
        self._lock, self._is_inside = loop_thread.new_call_lock()
        self._connected: AsyncFileSystem | None = None
        self._closed = closed
        self._unclosed = OpenFiles()
        self._generation = loop_thread.generation()  # last: a thread that sees it relies on the rest

    def acting_as(self, uid: int, gid: int, groups: Sequence[int] = ()) -> "FileSystem":
        """The same connection with the permissions of another user. Raises InvalidArgument.

        New files belong to that user. Closing it leaves the connection of this object open.
        """
        base = self if self._base is None else self._base
        return FileSystem(self._managers, self._options, caller=caller_of(uid, gid, groups), base=base)

    @property
    def address(self) -> str:
        return addresses.unparse(self._managers)

    def __repr__(self) -> str:
        return f"<threefs.FileSystem {self.address}>"

    def __getstate__(self) -> dict[str, Any]:
        caller = None if self._caller is None else self._caller.SerializeToString()
        return {"managers": self._managers, "options": self._options.without_token(), "caller": caller}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._managers = tuple(state["managers"])
        self._options = options.make(**state["options"])
        self._caller = None if state["caller"] is None else pb.Caller.FromString(state["caller"])
        self._base = None
        self._start()

    # ---- connection and loop ----

    def _async(self) -> AsyncFileSystem:
        if self._base is not None:
            return self._borrow(self._base._async())
        if self._generation != loop_thread.generation():
            self._reset_after_fork()
        core = self._connected
        if core is None or self._closed:
            self._check_outside()
            with self._lock:
                if self._closed:
                    raise ValueError("the file system object is closed")
                core = self._connected
                if core is None:
                    made = loop_thread.shared().run(context.connect(self._managers, self._options))
                    core = AsyncFileSystem(made, self._caller)
                    core.open_files.close_with_program()
                    self._connected = core  # last: other threads look without the lock
        return core

    def _check_outside(self) -> None:
        """Raises RuntimeError for a call within another one, as a signal handler may make it: it would wait for
        itself."""
        if self._is_inside():
            raise RuntimeError(f"reentrant call of {self!r}: this thread is in the middle of its first one")

    async def connected(self) -> AsyncFileSystem:
        """The asyncio file system of this connection, for coroutines on the loop thread. Connects if necessary."""
        base = self if self._base is None else self._base
        if base._connected is None or base._generation != loop_thread.generation():
            await run_in_thread(base._async)  # it waits for the loop thread
        return self._async()

    def _borrow(self, base: AsyncFileSystem) -> AsyncFileSystem:
        if self._closed:
            raise ValueError("the file system object is closed")
        core = self._connected
        if core is None or core.context is not base.context:
            core = AsyncFileSystem(base.context, self._caller)
            core.open_files = base.open_files
            self._connected = core  # last: another thread would open files that nobody closes
        return core

    def _reset_after_fork(self) -> None:
        with loop_thread.process_lock():
            if self._generation == loop_thread.generation():
                return  # another thread was faster
            if self._connected is not None:
                self._connected.context.peers.abandon()
            self._start(closed=self._closed)

    def _context(self) -> ClientContext:
        """The connection of this process, made on first use."""
        return self._async().context

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return loop_thread.run(work)

    def _close_later(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        base = self if self._base is None else self._base
        base._unclosed.close_later(name, work)

    def _call_soon(self, work: Callable[[], None]) -> None:
        loop_thread.shared().call_soon(work)

    def _inside_loop(self) -> bool:
        return loop_thread.shared().inside()

    @property
    def closed(self) -> bool:
        """Whether it, or the object whose connection it uses, was closed."""
        return self._closed or (self._base is not None and self._base.closed)

    def close(self) -> None:
        """Close the files that are open for writing, and drop the connections. Other files fail from then on.

        Raises the first error of a file that could not be closed, after everything else is done.
        """
        if self._base is not None:
            self._connected, self._closed = None, True
            return
        if self._generation != loop_thread.generation():
            self._reset_after_fork()
        self._check_outside()
        with self._lock:  # from now on no file is opened
            closed, self._closed = self._closed, True
        failure = None if closed else self._unclosed.close_all()
        core, self._connected = self._connected, None
        if core is not None:
            self._run(core.close())
        if failure is not None:
            raise failure

    def track(self, file: File | io.TextIOWrapper) -> None:
        """A file is open for writing. It is closed when this object is closed, or when the program ends.

        Raises ValueError if another thread has closed this object meanwhile.
        """
        if self._base is not None:
            self._base.track(file)
            return
        self._unclosed.add(file)
        if self._closed:  # maybe after `close` has listed the files
            with contextlib.suppress(ThreefsError):  # there may be no connection any more
                file.close()
            raise ValueError("the file system object was closed while the file was opened")

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def quotas(self) -> "BlockingQuotas":
        """Limits of trees and users."""
        return BlockingQuotas(self)

    @property
    def trash(self) -> "BlockingTrash":
        """Removed files, and how long they are kept."""
        return BlockingTrash(self)

    # ---- files ----

    @overload
    def open(
        self,
        path: Path,
        mode: BinaryMode = "rb",
        *,
        permissions: int = 0o644,
        parents: bool = False,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> File: ...

    @overload
    def open(
        self,
        path: Path,
        mode: TextMode,
        *,
        permissions: int = 0o644,
        parents: bool = False,
        chunk_bytes: int = 0,
        stripe: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...

    @overload
    def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        permissions: int = 0o644,
        parents: bool = False,
        chunk_bytes: int = 0,
        stripe: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any: ...

    def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        permissions: int = 0o644,
        parents: bool = False,
        chunk_bytes: int = 0,
        stripe: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Open a file. Modes are those of the built-in `open`: a File with "b", else an io.TextIOWrapper around one
        (UTF-8). Without a mode, a file is opened as "rb", as in other libraries of file systems (fsspec).

        For a new file, `parents` creates missing directories; `chunk_bytes` and `stripe` set its layout (0: inherited).
        """
        wanted = modes.parse(mode)
        if not wanted.text and (encoding or errors or newline is not None):
            raise InvalidArgument("a binary file has no encoding, errors or newline")
        layout = requested_layout(chunk_bytes, stripe)
        file = self._run(self._async().open_as(path, wanted, checked_permissions(permissions), parents, layout))
        binary = File(self, file)
        opened: File | io.TextIOWrapper = binary
        if wanted.text:
            opened = io.TextIOWrapper(binary, encoding=encoding or "utf-8", errors=errors, newline=newline)
        if wanted.writable:
            self.track(opened)
        return opened

    @documented_by(AsyncFileSystem.create_unnamed)
    def create_unnamed(
        self, directory: Path, *, permissions: int = 0o600, chunk_bytes: int = 0, stripe: int = 0
    ) -> File:
        made = self._async().create_unnamed(directory, permissions=permissions, chunk_bytes=chunk_bytes, stripe=stripe)
        file = File(self, self._run(made))
        self.track(file)
        return file

    link_file = blocking(AsyncFileSystem.link_file)
    read_batch = blocking(AsyncFileSystem.read_batch)
    write_batch = blocking(AsyncFileSystem.write_batch)
    chunk_checksums = blocking(AsyncFileSystem.chunk_checksums)
    copy_range = blocking(AsyncFileSystem.copy_range)
    copy = blocking(AsyncFileSystem.copy)
    read_file = blocking(AsyncFileSystem.read_file)
    write_file = blocking(AsyncFileSystem.write_file)

    # ---- many at once ----

    create_many = blocking(AsyncFileSystem.create_many)
    remove_many = blocking(AsyncFileSystem.remove_many)
    write_many = blocking(AsyncFileSystem.write_many)

    # ---- reading the namespace ----

    stat = blocking(AsyncFileSystem.stat)
    stat_many = blocking(AsyncFileSystem.stat_many)
    exists = blocking(AsyncFileSystem.exists)
    usage = blocking(AsyncFileSystem.usage)
    readlink = blocking(AsyncFileSystem.readlink)
    statfs = blocking(AsyncFileSystem.statfs)
    walk = blocking_iterator(AsyncFileSystem.walk, at_once=1)  # the caller may remove directories from each step
    list = blocking_iterator(AsyncFileSystem.list, at_once=1024)

    # ---- changing the namespace ----

    create = blocking(AsyncFileSystem.create)
    mkdir = blocking(AsyncFileSystem.mkdir)
    remove = blocking(AsyncFileSystem.remove)
    unlink = blocking(AsyncFileSystem.unlink)
    rmdir = blocking(AsyncFileSystem.rmdir)
    rename = blocking(AsyncFileSystem.rename)
    exchange = blocking(AsyncFileSystem.exchange)
    symlink = blocking(AsyncFileSystem.symlink)
    hard_link = blocking(AsyncFileSystem.hard_link)
    mknod = blocking(AsyncFileSystem.mknod)
    chmod = blocking(AsyncFileSystem.chmod)
    chown = blocking(AsyncFileSystem.chown)
    utime = blocking(AsyncFileSystem.utime)
    touch = blocking(AsyncFileSystem.touch)
    access = blocking(AsyncFileSystem.access)
    truncate = blocking(AsyncFileSystem.truncate)
    set_layout = blocking(AsyncFileSystem.set_layout)

    # ---- extended attributes ----

    getxattr = blocking(AsyncFileSystem.getxattr)
    listxattr = blocking(AsyncFileSystem.listxattr)
    setxattr = blocking(AsyncFileSystem.setxattr)
    removexattr = blocking(AsyncFileSystem.removexattr)


class BlockingQuotas:
    """Quotas of directory trees and of users. Each call names a directory or a user."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def _async(self) -> Quotas:
        return self._filesystem._async().quotas

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._filesystem._run(work)

    set = blocking(Quotas.set)
    clear = blocking(Quotas.clear)
    show = blocking(Quotas.show)
    list = blocking(Quotas.list)


class BlockingTrash:
    """Removed files, and how long they are kept."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def _async(self) -> Trash:
        return self._filesystem._async().trash

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._filesystem._run(work)

    set = blocking(Trash.set)
    list = blocking_iterator(Trash.list, at_once=1024)
    restore = blocking(Trash.restore)
    empty = blocking(Trash.empty)
