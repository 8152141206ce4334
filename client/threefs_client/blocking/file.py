"""The blocking file object: a standard raw stream that also buffers, safe to use from several threads."""

import io
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from threefs.env import loop_thread
from threefs_client.async_file import AsyncFile, byte_view
from threefs_client.data.fallocate import Allocation

if TYPE_CHECKING:
    from threefs_client.blocking.filesystem import FileSystem

T = TypeVar("T")


class File(io.RawIOBase):
    """Made by FileSystem.open. Positions and lengths are in bytes.

    Written bytes are durable, and their length seen by others, after `flush` or `close`. In a forked child a file that
    was open for reading can be read on; one that was open for writing is the parent's, and writing raises SessionLost.
    """

    def __init__(self, filesystem: "FileSystem", file: AsyncFile) -> None:
        self._filesystem = filesystem
        self._file = file
        self._lock = loop_thread.new_lock()
        self._generation = loop_thread.generation()
        self.name = file.name

    def threefs_file(self) -> AsyncFile:
        """For batches."""
        self._adopt()
        return self._file

    def _adopt(self) -> None:
        """After a fork: leave the parent what is its own."""
        if self._generation != loop_thread.generation():
            self._generation = loop_thread.generation()
            self._lock = loop_thread.new_lock()
            self._file.drop_after_fork()
            if not self._file.closed:
                self._file.handle.rebind_after_fork(self._filesystem._link())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
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

    def readable(self) -> bool:
        self._file.check_usable()
        return self._file.readable()

    def writable(self) -> bool:
        self._file.check_usable()
        return self._file.writable()

    def seekable(self) -> bool:
        self._file.check_usable()
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file; all the rest without a size."""
        self._adopt()
        with self._lock:
            self._file.check_usable(reading=True)
            ready = self._file.read_buffered(size) if size is not None and size >= 0 else None
            return self._run(self._file.read(size)) if ready is None else ready

    def read1(self, size: int = -1, /) -> bytes:
        """What is at hand, for TextIOWrapper."""
        return self.read(size if size is not None and size >= 0 else 64 << 10)

    def peek(self, size: int = 1, /) -> bytes:
        """At least one byte ahead, unless at the end; the position stays."""
        self._adopt()
        with self._lock:
            return self._run(self._file.peek(size))

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, without a copy if it is large. Fewer bytes only at the end of the file."""
        self._adopt()
        with self._lock:
            return self._run(self._file.readinto(buffer))

    def write(self, data: Any, /) -> int:
        """Write all of `data`; small pieces are held back until `flush` or `close` or a chunk is full."""
        self._adopt()
        view = byte_view(data)
        with self._lock:
            self._file.check_usable(writing=True)
            if self._file.handle.over_quota or not self._file.write_buffered(view):
                self._run(self._file.write(view))
        return len(view)

    def flush(self) -> None:
        """Make all that was written durable on all replicas, and let others see the length."""
        self._adopt()
        with self._lock:
            self._run(self._file.flush())

    def truncate(self, size: int | None = None, /) -> int:
        """Make the file `size` bytes long (by default: up to the position). The position stays."""
        self._adopt()
        with self._lock:
            return self._run(self._file.truncate(size))

    def allocate(self, offset: int, length: int, mode: int = Allocation.RESERVE) -> None:
        """What fallocate(2) does: reserve room, punch a hole, zero a range; see Allocation. The position stays.

        Durable when it returns. Raises InvalidArgument, NotSupported, FileTooLarge, QuotaExceeded, NoSpace.
        """
        self._adopt()
        with self._lock:
            self._run(self._file.allocate(offset, length, mode))

    def seek_data(self, offset: int) -> int:
        """The first byte of data from `offset` on; the position stays. Raises NoDataThere.

        A hole shows if it takes a whole chunk, or the end of one.
        """
        self._adopt()
        with self._lock:
            return self._run(self._file.seek_data(offset))

    def seek_hole(self, offset: int) -> int:
        """The first byte of a hole from `offset` on, at last the end of the file. Raises NoDataThere."""
        self._adopt()
        with self._lock:
            return self._run(self._file.seek_hole(offset))

    def lock(self, *, exclusive: bool = True, wait_s: float | None = None) -> None:
        """Lock the whole file as flock(2) does, against all clients that ask. What others wrote before is seen then.

        Raises Locked when it cannot be had within `wait_s`; by default it waits as long as it takes.
        """
        self._adopt()
        with self._lock:
            self._run(self._file.lock(exclusive=exclusive, wait_s=wait_s))

    def unlock(self) -> None:
        """Let others have it, and see what was written under it."""
        self._adopt()
        with self._lock:
            self._run(self._file.unlock())

    def close(self) -> None:
        if self._file.closed:
            return
        self._adopt()
        with self._lock:
            if self._filesystem._inside_loop():  # the garbage collector may run there
                self._filesystem._submit(self._file.close())
            else:
                self._run(self._file.close())

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an open file cannot be pickled: pickle the file system and the path")
