"""File objects as fsspec expects them: streams, which read ahead and write behind (`threefs_client`)."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from threefs_client import AsyncFile, File, FileSystem

from threefs.env import loop_thread
from threefs_fsspec.replacement import Replacement

T = TypeVar("T")


class ThreefsFile(File):
    """A blocking file object. One that is open for writing under a `Replacement` takes its name when it is closed, or
    by `commit` if it belongs to a transaction."""

    def __init__(
        self,
        fs: AbstractFileSystem,
        client: FileSystem,
        file: AsyncFile,
        path: str,
        *,
        replacement: Replacement | None = None,
        autocommit: bool = True,
    ) -> None:
        super().__init__(client, file)
        self.fs = fs
        self.path = path
        self.autocommit = autocommit
        self._replacement = replacement
        self._process = loop_thread.generation()
        self._complete = False  # written, and not committed yet

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.length

    @property
    def loc(self) -> int:
        """The position."""
        return self.tell()

    @property
    def blocksize(self) -> int:
        return self._file.handle.layout.chunk_bytes

    @property
    def full_name(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> dict[str, Any]:
        """The file system's description of the path."""
        return dict(self.fs.info(self.path))

    @property
    def closed(self) -> bool:
        return self._complete or self._file.closed

    def _check_usable(self, *, reading: bool = False, writing: bool = False) -> None:
        if self._complete:
            raise ValueError(f"file {self.name!r} is closed")
        super()._check_usable(reading=reading, writing=writing)

    def close(self) -> None:
        """Flush and close. A second call does nothing."""
        if self._replacement is None or self.autocommit or self._is_inherited or self._complete:
            super().close()
            return
        self.flush()
        self._complete = True

    def _end(self) -> Coroutine[Any, Any, None]:
        if self._replacement is None or self._is_inherited:
            return super()._end()
        return self._replacement.publish() if self.autocommit else self._replacement.discard()

    @property
    def _is_inherited(self) -> bool:
        """The process that opened the file is a parent of this one."""
        return self._process != loop_thread.generation()

    def give_way(self) -> None:
        """A file that has the name when this one is to take it keeps the name."""
        if self._replacement is not None:
            self._replacement.gives_way = True

    def commit(self) -> None:
        """At the end of a transaction: the file takes its name. Raises AlreadyExists, IsADirectory."""
        if self._replacement is not None and not self._file.closed:
            self._run(self._replacement.publish())

    def discard(self) -> None:
        """A transaction is abandoned: the file is removed."""
        if self._replacement is not None and not self._file.closed:
            self._run(self._replacement.discard())

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._file.writable():
            raise TypeError(f"file {self.name!r} is open for writing, so it cannot be pickled")
        return _reopen, (self.fs, self.path, self.tell())


def _reopen(fs: AbstractFileSystem, path: str, position: int) -> Any:
    file = fs.open(path, "rb")
    file.seek(position)
    return file


class AsyncThreefsFile:
    """The same for coroutines on any event loop; for one task at a time."""

    def __init__(self, path: str, file: AsyncFile, replacement: Replacement | None) -> None:
        self.path = path
        self._file = file
        self._replacement = replacement

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return await loop_thread.shared().run_for_loop(work)

    @property
    def mode(self) -> str:
        return self._file.mode

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._file.length

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position and return it."""
        return self._file.seek(offset, whence)

    async def read(self, length: int = -1) -> bytes:
        """Up to `length` bytes, fewer only at the end of the file."""
        return await self._run(self._file.read(length))

    async def readline(self) -> bytes:
        """The bytes up to and including the next newline."""
        return await self._run(self._file.readline())

    async def write(self, data: Any) -> int:
        """Write all of `data`: it is copied, and sent in the background."""
        return await self._run(self._file.write(data))

    async def flush(self) -> None:
        """Wait until everything is durable."""
        await self._run(self._file.flush())

    async def close(self) -> None:
        """Flush and close. A new file takes its name now."""
        if not self._file.closed:
            await self._run(self._file.close() if self._replacement is None else self._replacement.publish())

    async def __aenter__(self) -> "AsyncThreefsFile":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
