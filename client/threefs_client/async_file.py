"""A file object for asyncio. The blocking one (`blocking/file.py`) delegates to it."""

import asyncio
import io
from collections.abc import Callable
from types import TracebackType

import numpy as np

from threefs.errors import DeadlineExceeded, InvalidArgument, LockLost
from threefs_client.byte_view import byte_view
from threefs_client.data import fallocate, sparse
from threefs_client.data.append_retry import AppendRetry
from threefs_client.data.dirty_extents import covers, overlay
from threefs_client.data.fallocate import Allocation
from threefs_client.data.handles import Handle
from threefs_client.data.read_stream import ReadStream
from threefs_client.data.write_behind import FLUSH_BYTES, WriteBehind
from threefs_client.data.write_buffer import WriteBuffer
from threefs_client.metadata.locks import LockOwner
from threefs_client.modes import Mode

Buffer = bytes | bytearray | memoryview

#: So many bytes of small writes are put together before they are handed to the write-behind, or a chunk.
_GATHER_BYTES = 1 << 20
#: After so many reads without a write between them, unsent writes are flushed, so that reads can be read ahead.
_OVERLAID_READS = 4


class AsyncFile:
    """An open file, for one task at a time. Positions and lengths are in bytes."""

    def __init__(self, handle: Handle, mode: Mode, name: str) -> None:
        self.handle = handle
        self.name = handle.name = name
        self._mode = mode
        self._reads_since_write = 0
        self._closed = False
        self._lock: LockOwner | None = None
        self.on_closed: Callable[[AsyncFile], object] = lambda file: None
        self._start_buffers(handle.length if mode.append else 0)

    def _start_buffers(self, position: int) -> None:
        context, chunk_bytes = self.handle.context, self.handle.layout.chunk_bytes
        max_unsent = max(chunk_bytes, context.options.write_buffer_bytes // 2)
        self._write_behind = WriteBehind(
            self.handle,
            context.write_budget,
            max_unsent_bytes=max_unsent,
            keeps_failed=True,
            before_extents=self._confirm_session,
        )
        self._errors_seen = 0  # of the write-behind: how many this object has raised
        gather = min(FLUSH_BYTES if self._mode.append else _GATHER_BYTES, max_unsent)
        self._write_buffer = WriteBuffer(max(chunk_bytes, gather // chunk_bytes * chunk_bytes))
        self._append_retry = AppendRetry(self.handle)
        budget = context.read_ahead_budget
        self._stream = ReadStream(self.handle, context.options.read_ahead_bytes, budget, position)

    # ---- state ----

    @property
    def _position(self) -> int:
        return self._stream.position

    @_position.setter
    def _position(self, position: int) -> None:
        self._stream.position = position

    @property
    def mode(self) -> str:
        return self._mode.display

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def has_unsent_writes(self) -> bool:
        """True while written bytes are not durable."""
        return len(self._write_buffer) > 0 or not self._write_behind.is_idle

    @property
    def length(self) -> int:
        """Bytes in the file as far as this object knows, with its buffered writes. In any thread: in the order in which
        the loop moves bytes on."""
        return max(self._write_buffer.end, self._write_behind.end, self.handle.length)

    @property
    def inode(self) -> int:
        """The number of the file. Another one that takes its name has another number."""
        return self.handle.inode

    def readable(self) -> bool:
        """Whether the file is open for reading."""
        return self._mode.readable

    def writable(self) -> bool:
        """Whether the file is open for writing."""
        return self._mode.writable

    def tell(self) -> int:
        """The position, in bytes from the beginning."""
        self.check_usable()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position and return it. The end is the length as far as this object knows."""
        self.check_usable()
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.length}
        if whence not in bases:
            raise InvalidArgument(f"whence must be 0, 1 or 2, not {whence!r}")
        position = bases[whence] + offset
        if position < 0:
            raise InvalidArgument(f"cannot seek to the negative position {position}")
        self._position = position
        return position

    def check_usable(self, *, reading: bool = False, writing: bool = False) -> None:
        """Raises ValueError for a closed file, LockLost, and io.UnsupportedOperation for another mode."""
        if self._closed:
            raise ValueError(f"file {self.name!r} is closed")
        if self._lock is not None and self._lock.is_lost:
            raise LockLost(
                f"the lock on {self.name!r} was lost: the lease of this process expired; open the file again"
            )
        if reading and not self._mode.readable:
            raise io.UnsupportedOperation(f"file {self.name!r} is not open for reading")
        if writing and not self._mode.writable:
            raise io.UnsupportedOperation(f"file {self.name!r} is not open for writing")

    # ---- reading ----

    async def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file. Without a size, all bytes up to the end."""
        self.check_usable(reading=True)
        if size is None or size < 0:
            return await self._read_all()
        ready = self.read_buffered(size)
        if ready is not None:
            self.extend_read_ahead()
            return ready
        if self._may_overlay(size):
            view = np.empty(size, np.uint8).data
            return bytes(view[: await self._read_overlaid(view)])
        await self.flush_buffer()
        return await self._stream.read(size)

    def read_buffered(self, size: int) -> bytes | None:
        """`read` without I/O, in any thread. None when I/O is needed. Call `extend_read_ahead` on the loop if
        `wants_read_ahead` is true afterwards."""
        return None if self.has_unsent_writes else self._stream.read_now(size)

    async def readline(self, limit: int | None = -1) -> bytes:
        """The bytes up to and including the next newline, at most `limit` of them. Empty only at the end of the
        file."""
        self.check_usable(reading=True)
        limit = -1 if limit is None else limit
        ready = self.readline_buffered(limit)
        if ready is not None:
            self.extend_read_ahead()
            return ready
        await self.flush_buffer()
        return await self._stream.readline(limit)

    def readline_buffered(self, limit: int) -> bytes | None:
        """`readline` without I/O, as `read_buffered` is `read`."""
        line = self._stream.cut_line(limit)
        if line:
            return line
        if self.has_unsent_writes or not limit:
            return None
        return self._stream.readline_now(limit, cut=self._lock is None)  # the next read is to notice a lost lock

    def next_line(self) -> bytes:
        """The next one of the lines that are cut off already. Empty if there is none."""
        return self._stream.cut_line()

    def __aiter__(self) -> "AsyncFile":
        return self

    async def __anext__(self) -> bytes:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    @property
    def wants_read_ahead(self) -> bool:
        """`extend_read_ahead` has something to do."""
        return self._stream.wants_read_ahead

    def extend_read_ahead(self) -> None:
        """Read on ahead, if it is time to."""
        self._stream.extend()

    async def peek(self, size: int = 1) -> bytes:
        """At least one byte from the position on, except at the end of the file. The position stays."""
        self.check_usable(reading=True)
        ready = self.peek_buffered()
        if ready:
            return ready
        await self.flush_buffer()
        return await self._stream.peek(max(size, 1))

    def peek_buffered(self) -> bytes:
        """`peek` without I/O. Empty when I/O is needed."""
        return b"" if self.has_unsent_writes else self._stream.peek_now()

    async def readinto(self, buffer: object) -> int:
        """Fill a caller's buffer, without a copy if it is large. Returns the number of bytes; fewer than its size only
        at the end of the file."""
        self.check_usable(reading=True)
        view = byte_view(buffer, writable=True)
        ready = self.readinto_buffered(view)
        if ready is not None:
            self.extend_read_ahead()
            return ready
        if self._may_overlay(len(view)):
            return await self._read_overlaid(view)
        await self.flush_buffer()
        return await self._stream.readinto(view)

    def readinto_buffered(self, view: memoryview) -> int | None:
        """`readinto` without I/O, as `read_buffered` is `read`."""
        return None if self.has_unsent_writes else self._stream.readinto_now(view)

    def _may_overlay(self, size: int) -> bool:
        """Whether a read of `size` bytes lays the unsent writes over what is stored, instead of flushing them first.
        Nobody knows where unsent appends will lie."""
        small = size <= _GATHER_BYTES and self._reads_since_write < _OVERLAID_READS
        return small and self.has_unsent_writes and not self._mode.append

    async def _read_overlaid(self, view: memoryview) -> int:
        self._reads_since_write += 1
        position = self._position
        if position + len(view) > self.length:
            await self.handle.refresh()  # another client may have extended it
        view = view[: max(0, self.length - position)]
        # Bytes in flight may arrive before or after the chunks are read. So they are overlaid as well.
        unsent = self._write_behind.extents_of(position, len(view))
        unsent += self._write_buffer.copies_of(position, len(view))
        if not covers(unsent, position, len(view)):
            stored = await self.handle.read_into(position, view)
            view[stored:] = bytes(len(view) - stored)
        overlay(unsent, position, view)
        self._stream.advance(len(view))
        return len(view)

    async def _read_all(self) -> bytes:
        await self.flush_buffer()
        parts: list[memoryview] = []
        while True:
            missing = self.handle.length - self._position
            if missing <= 0:
                if parts:
                    break  # the length is as of the open, which is recent enough
                await self.handle.refresh()
                missing = self.handle.length - self._position
                if missing <= 0:
                    break
            view = np.empty(missing, np.uint8).data
            got = view[: await self.handle.read_into(self._position, view)]
            self._stream.advance(len(got))
            parts.append(got)
            if len(got) < missing:
                break
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    # ---- writing ----

    async def write(self, data: object) -> int:
        """Write all of `data`: it is copied, and sent in the background. Small pieces are put together until a chunk is
        full, or until `flush` or `close`.

        Raises the error of an earlier write that has failed in the background, once; its bytes are kept, and `flush`
        and `close` send them again. A call that fails leaves the position: it can be repeated, as the next call if the
        file is open for appending, and the bytes are there once.
        """
        self.check_usable(writing=True)
        view = byte_view(data)
        self._raise_background_error()
        self._reads_since_write = 0
        await self.handle.recheck_quota()
        self.drop_read_ahead()
        position = self._position
        try:
            if not self.write_buffered(view):
                await (self._append(view) if self._mode.append else self._write(view))
        except BaseException:  # a part may be taken: a repeat writes the same bytes there
            self._position = position
            raise
        return len(view)

    def write_buffered(self, view: memoryview) -> bool:
        """`write` without I/O, in any thread. False when I/O is needed."""
        if not self._stream.is_empty or self._write_behind.errors.current != self._errors_seen:
            return False
        position = self.length if self._mode.append and len(view) else self._position
        self.handle.check_write(position, len(view))
        if len(view) and (self._append_retry.may_be_repeated or len(view) >= self._write_buffer.room(position)):
            return False
        self._write_buffer.append(position, view)
        self._position = position + len(view)
        self._reads_since_write = 0
        return True

    def _raise_background_error(self) -> None:
        self._errors_seen, failure = self._write_behind.errors.check_and_advance(self._errors_seen)
        if failure is not None:
            raise failure

    async def _append(self, view: memoryview) -> None:
        """Append in one piece: appends of several clients never interleave or overlap."""
        if not self._append_retry.is_repeated_by(view):
            await self.flush_buffer()
        self._position = await self._append_retry.append_whole(view)

    async def _write(self, view: memoryview) -> None:
        while len(view):
            size = self._write_buffer.size_bytes
            if len(view) >= 2 * self._write_behind.max_unsent_bytes and self._write_buffer.room(self._position) == size:
                await self.flush_buffer()  # more than may be held goes straight from the caller's memory
                part = view[: len(view) // size * size]
                await self.handle.write(self._position, part)
                self._position += len(part)
            elif not self._write_buffer.room(self._position):
                await self._hand_over()
                continue
            else:
                part = view[: self._write_buffer.room(self._position)]
                self._write_buffer.append(self._position, part)
                self._position += len(part)
                if self._write_buffer.is_full:
                    await self._hand_over()
            view = view[len(part) :]

    async def _hand_over(self) -> None:
        """Hand the buffered bytes to the write-behind. They stay in the buffer if it has no room in time, or no
        memory."""
        timeout_s = self.handle.context.options.timeout_s
        offset, data = self._write_buffer.drain()
        try:
            async with asyncio.timeout(timeout_s) as limit:
                if data and not self._write_behind.try_add(offset, data):
                    await self._write_behind.add(offset, data)
        except BaseException as error:
            self._write_buffer.put_back(offset, data)
            self._errors_seen = self._write_behind.errors.current
            if isinstance(error, TimeoutError) and limit.expired():
                raise DeadlineExceeded(
                    f"{self.name!r} takes no more bytes, as {self._write_behind.held_bytes} bytes of it, and those of "
                    f"other files, were not sent within {timeout_s:g} s; flush or close other files, or raise the "
                    f"option max_dirty_bytes ({self.handle.context.write_budget.limit_bytes})"
                ) from None
            raise

    async def _confirm_session(self) -> None:
        """Before bytes are sent in the background: the write session must not have ended with its lease."""
        if not self.handle.context.lease.is_valid:
            await self.handle.context.lease.revalidate()
        self.handle.check_writable(0, 0)

    async def flush_buffer(self) -> None:
        """Send everything that was written, and wait until it is durable."""
        self._append_retry.give_up_whole()
        if not self._write_behind.is_idle:
            try:
                await self._write_behind.flush()
            finally:  # nothing is lost: what an earlier flush could not send, this one has sent, or raises
                self._errors_seen = self._write_behind.errors.current
        follows = self._position == self._write_buffer.end  # else the program has moved on since it has appended
        while len(self._write_buffer):
            offset, data = self._write_buffer.drain()
            sent = 0
            try:
                if self._mode.append:
                    sent, end = await self._append_retry.append(memoryview(data))
                    self._position = end if follows else self._position
                else:
                    await self.handle.write(offset, memoryview(data))
                    sent = len(data)
            finally:
                if not sent and not self._write_buffer:  # nothing is copied: maybe there is no memory for that
                    self._write_buffer.put_back(offset, data)
                elif sent < len(data):
                    self._write_buffer.append(offset + sent, data[sent:])  # for a later flush

    async def flush(self) -> None:
        """Send buffered writes. Then everything is durable on all replicas, and other clients see the length."""
        self.check_usable()
        if self._mode.writable:
            await self.flush_buffer()
            await self.handle.sync()

    async def truncate(self, size: int | None = None) -> int:
        """Make the file `size` bytes long (by default: up to the position). The position stays."""
        self.check_usable(writing=True)
        size = self._position if size is None else size
        self.handle.check_write(0, size)
        await self.flush_buffer()
        self.drop_read_ahead()
        await self.handle.truncate(size)
        return size

    async def allocate(self, offset: int, length: int, mode: int = Allocation.RESERVE) -> None:
        """Do what fallocate(2) does: reserve room, punch a hole, or zero a range; see Allocation. The position stays.

        Durable when it returns. Raises InvalidArgument, NotSupported, FileTooLarge, QuotaExceeded, NoSpace.
        """
        self.check_usable(writing=True)
        await self.flush_buffer()
        self.drop_read_ahead()
        await fallocate.allocate(self.handle, offset, length, mode)

    async def seek_data(self, offset: int) -> int:
        """The offset of the first data from `offset` on. The position stays. Raises NoDataThere.

        A hole is found if it takes a whole chunk, or the end of one.
        """
        self.check_usable()
        await self.flush_buffer()
        return await sparse.seek_data(self.handle, offset)

    async def seek_hole(self, offset: int) -> int:
        """The offset of the first hole from `offset` on; the end of the file counts as one. Raises NoDataThere."""
        self.check_usable()
        await self.flush_buffer()
        return await sparse.seek_hole(self.handle, offset)

    # ---- locking ----

    async def lock(self, *, exclusive: bool = True, wait_s: float | None = None) -> None:
        """Lock the whole file as flock(2) does, with an advisory lock that all clients see. Afterwards writes of
        earlier holders are visible.

        Raises Locked when it is not granted within `wait_s` seconds; by default it waits without a limit.
        """
        self.check_usable()
        if self._lock is None:
            context = self.handle.context
            self._lock = LockOwner(context, self.handle.inode, context.random.below(1 << 63), name=self.name)
        grant = await self._lock.acquire(exclusive=exclusive, wait_s=wait_s)
        self.drop_read_ahead()
        try:
            await self.handle.refresh()
        except BaseException:
            self._lock.give_back(grant)  # but a task that had the lock before, or got it since, keeps it
            raise

    async def unlock(self) -> None:
        """Release the lock, after a flush, so that the next holder sees what was written under it."""
        if self._lock is not None:
            if self._mode.writable and not self._closed:
                await self.flush()
            await self._lock.release()

    async def close(self) -> None:
        """Flush and close. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush_buffer()
        finally:
            self.drop_read_ahead()
            try:
                await self._close_handle()
            finally:
                self.on_closed(self)
                if self._lock is not None:
                    await self._lock.release_all()

    async def _close_handle(self) -> None:
        try:
            if not self._write_behind.is_idle:  # a flush has failed, or was cancelled
                await self._write_behind.close()
        finally:
            if not self._write_behind.is_idle:  # the wait for it was cancelled as well
                self.handle.record_write(outcome_unknown=True)
            await self.handle.close()

    def drop_read_ahead(self) -> None:
        """The file changes, so bytes that were read ahead are out of date."""
        self._stream.clear()

    def drop_after_fork(self, *, closes: bool = False) -> None:
        """In a forked child: drop the buffered writes and the lock, which belong to the parent."""
        self._start_buffers(self._position)
        self._lock, self._closed = None, self._closed or closes

    async def __aenter__(self) -> "AsyncFile":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
