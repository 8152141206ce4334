"""The blocking file system: the asyncio one on a background loop, with or without a loop in the caller."""

import io
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from threefs.env import loop_thread
from threefs.errors import InvalidArgument, NotADirectory, NotFound, ThreefsError
from threefs.wire import meta_pb2 as pb
from threefs_client import addresses, context, modes, options, paths
from threefs_client.async_filesystem import AsyncFileSystem, ReadRow, WriteRow
from threefs_client.attributes import Attributes, Entry, Space, Usage
from threefs_client.blocking.administration import BlockingQuotas, BlockingTrash
from threefs_client.blocking.file import File
from threefs_client.context import ClientContext
from threefs_client.credentials import caller_of
from threefs_client.exit_flush import Closable, OpenFiles
from threefs_client.metadata.namespace import checked_permissions, requested_layout
from threefs_client.metadata.walking import Step, Walk
from threefs_client.options import Options

T = TypeVar("T")
Path = paths.Path


def connect(url: str, **chosen: Any) -> "FileSystem":
    """Connect to the cluster "threefs://host:port"; see Options for what can be chosen.

    Raises InvalidArgument for a bad address or option, Unavailable when no manager answers there.
    """
    filesystem = FileSystem(addresses.parse(url), options.make(**chosen))
    filesystem._link()
    return filesystem


class FileSystem:
    """All operations, from any number of threads. Paths are absolute, from the root of the cluster.

    A forked child and whoever unpickles it connect anew, under an identity of their own, on first use. The key is not
    pickled: another process finds it by itself (`keyring`).
    """

    def __init__(
        self,
        managers: tuple[str, ...],
        options: Options,
        *,
        caller: pb.Caller | None = None,
        base: "FileSystem | None" = None,
    ) -> None:
        """`base` lends its connection."""
        self._managers = managers
        self._options = options
        self._caller = caller
        self._base = base
        self._start()

    def _start(self) -> None:
        self._lock = loop_thread.new_lock()
        self._connected: AsyncFileSystem | None = None
        self._closed = False
        self._unclosed = OpenFiles()
        self._generation = loop_thread.generation()  # last: another thread that sees it must find the rest done

    def acting_as(self, uid: int, gid: int, groups: Sequence[int] = ()) -> "FileSystem":
        """The same connection on behalf of a user: what is not permitted to it fails. Raises InvalidArgument.

        What it makes belongs to that user. Closing it leaves the connection to this object.
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

    # ---- the loop behind ----

    def _core(self) -> AsyncFileSystem:
        if self._base is not None:
            return self._lent(self._base._core())
        if self._generation != loop_thread.generation():
            self._leave_to_parent()
        core = self._connected
        if core is None:
            with self._lock:
                core = self._connected
                if core is None:
                    if self._closed:
                        raise ValueError("the file system object is closed")
                    made = loop_thread.shared().run(context.connect(self._managers, self._options))
                    core = self._connected = AsyncFileSystem(made, self._caller)
        return core

    def _lent(self, base: AsyncFileSystem) -> AsyncFileSystem:
        if self._closed:
            raise ValueError("the file system object is closed")
        core = self._connected
        if core is None or core.context is not base.context:
            core = self._connected = AsyncFileSystem(base.context, self._caller)
        return core

    def _leave_to_parent(self) -> None:
        inherited, closed = self._connected, self._closed
        self._start()
        self._closed = closed
        if inherited is not None:
            inherited.context.peers.abandon()

    def _link(self) -> ClientContext:
        """The connection of this process, made if need be."""
        return self._core().context

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return loop_thread.run(work)

    def _submit(self, work: Coroutine[Any, Any, object]) -> None:
        loop_thread.shared().submit(work)

    def _inside_loop(self) -> bool:
        return loop_thread.shared().inside()

    def close(self) -> None:
        """Close the files that are open for writing, and drop the connections. Other files fail from then on.

        Raises what went wrong with the first file that could not be stored, after all else is done.
        """
        if self._base is not None:
            self._connected, self._closed = None, True
            return
        if self._generation != loop_thread.generation():
            self._leave_to_parent()
        failure = None if self._closed else self._unclosed.close_all()
        with self._lock:
            core, self._connected, self._closed = self._connected, None, True
        if core is not None:
            self._run(core.close())
        if failure is not None:
            raise failure

    def _note_unclosed(self, file: Closable) -> None:
        """A file is open for writing: it is closed when this object is, or the program ends."""
        if self._base is not None:
            self._base._note_unclosed(file)
        else:
            self._unclosed.add(file)

    def __enter__(self) -> "FileSystem":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def quotas(self) -> BlockingQuotas:
        """Limits of trees and users."""
        return BlockingQuotas(self, self._core().quotas)

    @property
    def trash(self) -> BlockingTrash:
        """What was removed, and how long it is kept."""
        return BlockingTrash(self, self._core().trash)

    # ---- files ----

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
        """Open a file; modes as in the built-in `open`: a File with "b", else an io.TextIOWrapper around one (UTF-8).

        For a new file: `parents` makes missing directories; `chunk_bytes`, `stripe` choose its layout (0: inherited).
        """
        wanted = modes.parse(mode)
        if not wanted.text and (encoding or errors or newline is not None):
            raise InvalidArgument("a binary file has no encoding, errors or newline")
        layout = requested_layout(chunk_bytes, stripe)
        core = self._core()
        file = self._run(core.open_as(path, wanted, checked_permissions(permissions), parents, layout))
        binary = File(self, file)
        opened: File | io.TextIOWrapper = binary
        if wanted.text:
            opened = io.TextIOWrapper(binary, encoding=encoding or "utf-8", errors=errors, newline=newline)
        if wanted.writable:
            self._note_unclosed(opened)
        return opened

    def create_unnamed(
        self, directory: Path, *, permissions: int = 0o600, chunk_bytes: int = 0, stripe: int = 0
    ) -> File:
        """A new file, open as with "wb+", that nobody else can see; it is gone when it is closed or this process dies,
        unless `link_file` has given it a name. It inherits from the directory as if it were made in it (O_TMPFILE)."""
        core = self._core()
        made = core.create_unnamed(directory, permissions=permissions, chunk_bytes=chunk_bytes, stripe=stripe)
        file = File(self, self._run(made))
        self._note_unclosed(file)
        return file

    def link_file(self, file: Any, destination: Path) -> Attributes:
        """Give an open file a name, or one more: all that was written is durable and seen under it at once.

        Raises AlreadyExists; NotFound for a file whose last name is gone.
        """
        return self._run(self._core().link_file(file, destination))

    def read_batch(
        self, rows: Sequence[ReadRow], into: Any = None, *, timeout_s: float | None = None
    ) -> list[memoryview]:
        """See AsyncFileSystem.read_batch."""
        return self._run(self._core().read_batch(rows, into, timeout_s=timeout_s))

    def write_batch(self, rows: Sequence[WriteRow], *, timeout_s: float | None = None) -> int:
        """See AsyncFileSystem.write_batch."""
        return self._run(self._core().write_batch(rows, timeout_s=timeout_s))

    def copy_range(self, source: Any, offset: int, destination: Any, at: int, length: int) -> int:
        """See AsyncFileSystem.copy_range."""
        return self._run(self._core().copy_range(source, offset, destination, at, length))

    def copy(self, source: Path, destination: Path, *, replace: bool = True) -> int:
        """See AsyncFileSystem.copy."""
        return self._run(self._core().copy(source, destination, replace=replace))

    def read_file(self, path: Path) -> bytes:
        """All bytes of a file."""
        return self._run(self._core().read_file(path))

    def write_file(self, path: Path, data: Any) -> None:
        """Make or replace a file."""
        self._run(self._core().write_file(path, data))

    # ---- many at once ----

    def create_many(
        self,
        names: Sequence[Path],
        *,
        permissions: int = 0o644,
        parents: bool = False,
        exclusive: bool = True,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> Sequence[Attributes | ThreefsError]:
        """Make empty files, any number of them, in no particular order; per path what was made, or why not.

        Each is made once or not at all, whatever becomes of the others. `parents` makes missing directories. Without
        `exclusive` an existing file is no error. `chunk_bytes` and `stripe` are as of `open`.
        """
        work = self._core().create_many(
            names,
            permissions=permissions,
            parents=parents,
            exclusive=exclusive,
            chunk_bytes=chunk_bytes,
            stripe=stripe,
        )
        return self._run(work)

    def remove_many(self, names: Sequence[Path]) -> Sequence[ThreefsError | None]:
        """Remove files, links and empty directories, any number of them, in no particular order; per path None, or why
        it was not removed."""
        return self._run(self._core().remove_many(names))

    # ---- looking ----

    def stat(self, path: Path, *, follow: bool = True) -> Attributes:
        """Raises NotFound, NotADirectory, TooManySymlinks."""
        return self._run(self._core().stat(path, follow=follow))

    def stat_many(self, names: Sequence[Path], *, follow: bool = True) -> list[Attributes | None]:
        """One answer per path, None where nothing is. Any other error is raised."""
        return self._run(self._core().stat_many(names, follow=follow))

    def exists(self, path: Path) -> bool:
        """True also for a directory; False for a symbolic link to nowhere."""
        return self._run(self._core().exists(path))

    def list(self, path: Path, *, with_attributes: bool = False) -> Iterator[Entry]:
        """The entries of a directory by name, fetched in pages."""
        after, more = "", True
        while more:
            page, more = self._run(self._core().list_page(path, after, with_attributes=with_attributes))
            yield from page
            after = page[-1].name if page else ""

    def walk(self, top: Path, *, with_attributes: bool = True) -> Iterator[Step]:
        """(path of a directory, its directories, its other entries), from the top down, links not followed.

        A large directory comes in several steps, each with the entries that follow by name; what lies below the
        directories of a step comes before the next one. Directories that are taken out of a step's list are not walked,
        nor those that are gone when it is their turn.
        """
        walk = Walk(top)
        while (page := walk.next_page()) is not None:
            try:
                entries, more = self._run(self._core().list_page(*page, with_attributes=with_attributes))
            except (NotFound, NotADirectory):
                if not walk.skip_missing():
                    raise
                continue
            yield walk.take_page(entries, more)

    def usage(self, top: Path) -> Usage:
        """Sums over a tree, what `du` shows."""
        return self._run(self._core().usage(top))

    def readlink(self, path: Path) -> str:
        """Raises InvalidArgument for anything but a symbolic link."""
        return self._run(self._core().readlink(path))

    def statfs(self) -> Space:
        return self._run(self._core().statfs())

    # ---- changing ----

    def create(
        self,
        path: Path,
        *,
        permissions: int = 0o644,
        parents: bool = False,
        exclusive: bool = True,
        chunk_bytes: int = 0,
        stripe: int = 0,
    ) -> Attributes:
        """Make an empty file without opening it; the arguments are those of `create_many`."""
        work = self._core().create(
            path,
            permissions=permissions,
            parents=parents,
            exclusive=exclusive,
            chunk_bytes=chunk_bytes,
            stripe=stripe,
        )
        return self._run(work)

    def mkdir(self, path: Path, *, mode: int = 0o755, parents: bool = False) -> Attributes:
        """With `parents`, missing directories above are made too and an existing one is no error."""
        return self._run(self._core().mkdir(path, mode=mode, parents=parents))

    def remove(self, path: Path, *, recursive: bool = False) -> None:
        """A file, a link, or a directory: an empty one, or with `recursive` all below it."""
        self._run(self._core().remove(path, recursive=recursive))

    def unlink(self, path: Path) -> None:
        """Anything but a directory."""
        self._run(self._core().unlink(path))

    def rmdir(self, path: Path) -> None:
        """An empty directory."""
        self._run(self._core().rmdir(path))

    def rename(self, source: Path, destination: Path, *, replace: bool = True) -> Attributes:
        """Atomic; an existing destination is replaced unless `replace` is false (then AlreadyExists)."""
        return self._run(self._core().rename(source, destination, replace=replace))

    def symlink(self, target: Path, path: Path) -> Attributes:
        """Make `path` a symbolic link to `target`, which need not exist."""
        return self._run(self._core().symlink(target, path))

    def hard_link(self, source: Path, destination: Path) -> Attributes:
        """Make `destination` another name of the file `source`."""
        return self._run(self._core().hard_link(source, destination))

    def chmod(self, path: Path, mode: int, *, follow: bool = True) -> Attributes:
        return self._run(self._core().chmod(path, mode, follow=follow))

    def chown(self, path: Path, uid: int, gid: int, *, follow: bool = True) -> Attributes:
        """An id of -1 stays as it is."""
        return self._run(self._core().chown(path, uid, gid, follow=follow))

    def utime(self, path: Path, atime_ns: int | None, mtime_ns: int | None, *, follow: bool = True) -> Attributes:
        """Set the times, in nanoseconds since 1970; None leaves one as it is."""
        return self._run(self._core().utime(path, atime_ns, mtime_ns, follow=follow))

    def touch(self, path: Path, *, follow: bool = True) -> Attributes:
        """Set both times to now, which whoever may write the file may do too."""
        return self._run(self._core().touch(path, follow=follow))

    def access(self, path: Path, wanted: int, *, follow: bool = True) -> Attributes:
        """Raises AccessDenied unless all is permitted that is `wanted`: os.R_OK, os.W_OK, os.X_OK together."""
        return self._run(self._core().access(path, wanted, follow=follow))

    def mknod(self, path: Path, mode: int, device: int = 0) -> Attributes:
        """Make a FIFO, a socket, a device or an empty file; `mode` has the bits of the type, as for os.mknod."""
        return self._run(self._core().mknod(path, mode, device))

    def exchange(self, one: Path, other: Path) -> None:
        """Two entries, of any kinds, change places, atomically."""
        self._run(self._core().exchange(one, other))

    def getxattr(self, path: Path, name: Path, *, follow: bool = True) -> bytes:
        """Raises NoAttribute."""
        return self._run(self._core().getxattr(path, name, follow=follow))

    def listxattr(self, path: Path, *, follow: bool = True) -> Sequence[str]:
        return self._run(self._core().listxattr(path, follow=follow))

    def setxattr(
        self, path: Path, name: Path, value: bytes, *, create: bool = False, replace: bool = False, follow: bool = True
    ) -> None:
        """Raises AlreadyExists with `create`, NoAttribute with `replace`; NoSpace, NotSupported, ResultTooLong."""
        self._run(self._core().setxattr(path, name, value, create=create, replace=replace, follow=follow))

    def removexattr(self, path: Path, name: Path, *, follow: bool = True) -> None:
        """Raises NoAttribute."""
        self._run(self._core().removexattr(path, name, follow=follow))

    def truncate(self, path: Path, length: int) -> Attributes:
        """Cut a file to `length` bytes, or extend it with zeros."""
        return self._run(self._core().truncate(path, length))

    def set_layout(self, path: Path, *, chunk_bytes: int = 0, stripe: int = 0, table_id: int = 0) -> Attributes:
        """Of a directory: what new files below it get. 0 leaves a value to what is inherited."""
        return self._run(self._core().set_layout(path, chunk_bytes=chunk_bytes, stripe=stripe, table_id=table_id))
