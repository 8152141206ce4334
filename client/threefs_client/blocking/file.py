"""The blocking file object: a standard raw stream that also buffers, safe to use from several threads."""

import contextlib
import io
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from threefs.env import loop_thread
from threefs_client.async_file import AsyncFile
from threefs_client.blocking.wrappers import blocking, documented_by
from threefs_client.byte_view import byte_view
from threefs_client.context import ClientContext

T = TypeVar("T")


class Connection(Protocol):
    """The file system object that opened a file: its connection, and the loop thread."""

    def _context(self) -> ClientContext:
        """Connects if necessary."""

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop thread, and wait for the result."""

    def _close_later(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start the work of closing a file on the loop thread."""

    def _call_soon(self, work: Callable[[], None]) -> None:
        """Call on the loop thread."""

    def _inside_loop(self) -> bool:
        """Whether this is the loop thread."""


class File(io.RawIOBase):
    """Made by FileSystem.open. Positions and lengths are in bytes.

    After `flush` or `close` written bytes are durable, and other clients see the length. A forked child can go on
    reading a file that was open for reading. A file that was open for writing belongs to the parent: a write raises
    SessionLost.

    Threads take turns. A call within another one of the same thread, as a signal handler may make it, would wait for
    itself: it raises RuntimeError, as with Python's own files.
    """

    def __init__(self, filesystem: Connection, file: AsyncFile) -> None:
        self._filesystem = filesystem
        self._file = file
        self._lock, self._is_inside = loop_thread.new_call_lock()
        self._ends = False  # the connection or the program ends, and closes it
        self._generation = loop_thread.generation()
        self.name = file.name

    def threefs_file(self) -> AsyncFile:
        """The asyncio file, for batches."""
        if self._generation != loop_thread.generation():
            self._separate()
        return self._file

    def _async(self) -> AsyncFile:
        """The asyncio file, for the next call."""
        if self._generation != loop_thread.generation():
            self._separate()
        if self._is_inside() and not self._ends:
            raise self._reentrant()
        return self._file

    @property
    def _is_parents(self) -> bool:
        """This process, a forked child, has not used the file yet: it has nothing to flush or to close. And it makes no
        call for that, as the garbage collector may run in the middle of another call, which would wait for this one."""
        return self._generation != loop_thread.generation()

    def _separate(self) -> None:
        """After a fork: from the parent's buffers, lock and session."""
        context = None if self._file.closed else self._filesystem._context()
        with loop_thread.process_lock():
            if self._generation != loop_thread.generation():  # else another thread was faster
                self._lock, self._is_inside = loop_thread.new_call_lock()
                self._file.drop_after_fork()
                if context is not None:
                    self._file.handle.rebind_after_fork(context)
                    self._filesystem._call_soon(self._file.handle.register)
                self._generation = loop_thread.generation()  # last, as another thread relies on the rest

    def _reentrant(self) -> RuntimeError:
        return RuntimeError(f"reentrant call of file {self.name!r}: this thread is in the middle of another one")

    def _check_usable(self, *, reading: bool = False, writing: bool = False) -> None:
        if self._file.closed:
            loop_thread.park_daemon()  # the end of the program has closed it
        self._file.check_usable(reading=reading, writing=writing)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_inside() and not self._ends:
            work.close()
            raise self._reentrant()
        with self._lock:
            return self._filesystem._run(work)

    @property
    def mode(self) -> str:
        return self._file.mode

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def length(self) -> int:
        """Bytes in the file as far as this object knows."""
        return self._file.length

    @property
    def inode(self) -> int:
        """The number of the file. Another one that takes its name has another number."""
        return self._file.inode

    @documented_by(AsyncFile.readable)
    def readable(self) -> bool:
        self._file.check_usable()
        return self._file.readable()

    @documented_by(AsyncFile.writable)
    def writable(self) -> bool:
        self._file.check_usable()
        return self._file.writable()

    def seekable(self) -> bool:
        self._file.check_usable()
        return True

    @documented_by(AsyncFile.tell)
    def tell(self) -> int:
        return self._file.tell()

    @documented_by(AsyncFile.seek)
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    @documented_by(AsyncFile.read)
    def read(self, size: int | None = -1, /) -> bytes:
        file = self._async()
        with self._lock:
            self._check_usable(reading=True)
            ready = file.read_buffered(size) if size is not None and size >= 0 else None
            return self._filesystem._run(file.read(size)) if ready is None else self._served(ready)

    @documented_by(AsyncFile.readline)
    def readline(self, size: int | None = -1, /) -> bytes:
        file = self._async()
        with self._lock:
            self._check_usable(reading=True)
            ready = file.readline_buffered(-1 if size is None else size)
            return self._filesystem._run(file.readline(size)) if ready is None else self._served(ready)

    def __next__(self) -> bytes:
        file = self._async()
        with self._lock:
            line = file.next_line()  # a closed file has none, and neither has one with a lock that may be lost
        line = line or self.readline()
        if not line:
            raise StopIteration
        return line

    @documented_by(AsyncFile.peek)
    def peek(self, size: int = 1, /) -> bytes:
        file = self._async()
        with self._lock:
            self._check_usable(reading=True)
            return file.peek_buffered() or self._filesystem._run(file.peek(size))

    @documented_by(AsyncFile.readinto)
    def readinto(self, buffer: Any, /) -> int:
        file, view = self._async(), byte_view(buffer, writable=True)
        with self._lock:
            self._check_usable(reading=True)
            ready = file.readinto_buffered(view)
            return self._filesystem._run(file.readinto(view)) if ready is None else self._served(ready)

    def _served(self, ready: T) -> T:
        """A read was served from memory, without the loop. The loop reads on ahead when it is time to."""
        if self._file.wants_read_ahead:
            self._filesystem._call_soon(self._file.extend_read_ahead)
        return ready

    def read1(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, for TextIOWrapper."""
        return self.read(size if size is not None and size >= 0 else 64 << 10)

    def readall(self) -> bytes:
        return self.read(-1)

    @documented_by(AsyncFile.write)
    def write(self, data: Any, /) -> int:
        file, view = self._async(), byte_view(data)
        with self._lock:
            self._check_usable(writing=True)
            if file.handle.over_quota or not file.write_buffered(view):
                self._filesystem._run(file.write(view))
        return len(view)

    @documented_by(AsyncFile.flush)
    def flush(self) -> None:
        if self._file.closed or not self._is_parents:
            self._run(self._async().flush())

    truncate = blocking(AsyncFile.truncate)
    allocate = blocking(AsyncFile.allocate)
    seek_data = blocking(AsyncFile.seek_data)
    seek_hole = blocking(AsyncFile.seek_hole)
    lock = blocking(AsyncFile.lock)
    unlock = blocking(AsyncFile.unlock)

    def close(self) -> None:
        """Flush and close. A second call does nothing."""
        if self._file.closed:
            return
        if self._is_parents:
            self._file.drop_after_fork(closes=True)
        elif self._filesystem._inside_loop():  # the garbage collector may run there
            with self._lock:
                self._filesystem._close_later(self.name, self._end())
        else:
            self._run(self._end())

    def _end(self) -> Coroutine[Any, Any, None]:
        """The work of `close`."""
        return self.threefs_file().close()

    def closing(self, locks: contextlib.ExitStack, wait_s: float) -> tuple[Coroutine[Any, Any, None], bool] | None:
        """The work of `close`, to be run on the loop thread together with that of other files; None: it is closed.
        Other threads wait until `locks` ends; a call that is being made now has `wait_s` to end. Returns also whether
        it has ended: then this thread may still write."""
        if self._file.closed:
            return None
        work, is_inside, self._ends = self._end(), self._is_inside(), True
        is_free = not is_inside and self._lock.acquire(timeout=wait_s)
        if is_free:
            locks.callback(self._lock.release)
        return work, is_free

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an open file cannot be pickled: pickle the file system and the path")
