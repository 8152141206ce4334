"""A file object for asyncio. The blocking one (`blocking/file.py`) delegates to it."""

import io
from types import TracebackType

import numpy as np

from threefs.errors import InvalidArgument, LockLost
from threefs.wire import meta_pb2 as pb
from threefs_client.data import fallocate, sparse
from threefs_client.data.buffering import ReadAhead, WriteBuffer
from threefs_client.data.fallocate import Allocation
from threefs_client.data.handles import AppendRange, Handle
from threefs_client.metadata.locks import LockOwner
from threefs_client.modes import Mode

Buffer = bytes | bytearray | memoryview


def byte_view(data: object, *, writable: bool = False) -> memoryview:
    """The bytes of a buffer without a copy. Raises InvalidArgument unless it is contiguous (and writable)."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"a bytes-like object is needed, not {type(data).__name__}") from None
    if not view.c_contiguous:
        raise InvalidArgument("the buffer is not contiguous; copy it into a contiguous one")
    if writable and view.readonly:
        raise InvalidArgument("the buffer is read-only")
    if view.format == "B" and view.ndim == 1:
        return view
    if view.nbytes == 0:
        return memoryview(bytearray())
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # a format that only numpy knows
        return np.asarray(data).reshape(-1).view(np.uint8).data


class AsyncFile:
    """An open file, for one task at a time. Positions and lengths are in bytes."""

    def __init__(self, handle: Handle, mode: Mode, name: str) -> None:
        self.handle = handle
        self.name = handle.name = name
        self._mode = mode
        self._position = 0
        self._closed = False
        self._lock: LockOwner | None = None
        self.open_files: object = None  # closes this file when the loop ends, and must live as long
        options, chunk_bytes = handle.context.options, handle.layout.chunk_bytes
        self._write_buffer = WriteBuffer(max(chunk_bytes, options.write_buffer_bytes // chunk_bytes * chunk_bytes))
        self._append_range: AppendRange | None = None  # of the first buffered bytes, after a failed append
        self._reservation: tuple[int, pb.Mutation] | None = None  # (length, identity) of a call that may be repeated
        self._read_ahead = ReadAhead(options.read_ahead_bytes)
        if mode.append:
            self._position = handle.length

    # ---- state ----

    @property
    def mode(self) -> str:
        return self._mode.display

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def has_unsent_writes(self) -> bool:
        """True while written bytes are in the buffer."""
        return len(self._write_buffer) > 0

    @property
    def length(self) -> int:
        """Bytes in the file as far as this object knows, with its buffered writes."""
        return max(self.handle.length, self._write_buffer.end)

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
            return ready
        await self.flush_buffer()
        parts = []
        while size > 0:
            got = self._read_ahead.rest(self._position)[:size] or await self._fetch(self._position, size)
            if not got:
                break
            self._position += len(got)
            size -= len(got)
            parts.append(got)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def read_buffered(self, size: int) -> bytes | None:
        """`read` without I/O. None when I/O is needed."""
        if len(self._write_buffer):
            return None
        here = self._read_ahead.get(self._position, size)
        if here is None:
            return None
        self._position += len(here)
        return bytes(here)

    async def peek(self, size: int = 1) -> bytes:
        """At least one byte from the position on, except at the end of the file. The position stays."""
        self.check_usable(reading=True)
        await self.flush_buffer()
        here = self._read_ahead.rest(self._position)
        return bytes(here or await self._fetch(self._position, max(size, 1), whole=True))

    async def readinto(self, buffer: object) -> int:
        """Fill a caller's buffer, without a copy if it is large. Returns the number of bytes; fewer than its size only
        at the end of the file."""
        self.check_usable(reading=True)
        view = byte_view(buffer, writable=True)
        await self.flush_buffer()
        done = 0
        while done < len(view):
            rest = view[done:]
            here = self._read_ahead.rest(self._position)[: len(rest)]
            if here:
                rest[: len(here)] = here
                got = len(here)
            else:
                got = await self.handle.read_into(self._position, rest)
            if not got:
                break
            self._position += got
            done += got
        return done

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
            got = await self._read_exactly(self._position, missing)
            self._position += len(got)
            parts.append(got)
            if len(got) < missing:
                break
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    async def _fetch(self, position: int, size: int, *, whole: bool = False) -> memoryview:
        """Read, and keep the excess as read-ahead."""
        got = await self._read_exactly(position, self._read_ahead.fetch_bytes(position, size))
        self._read_ahead.put(position, got)
        return got if whole else self._read_ahead.get(position, min(size, len(got))) or memoryview(b"")

    async def _read_exactly(self, position: int, size: int) -> memoryview:
        if position >= self.handle.length:
            await self.handle.refresh()
        size = max(0, min(size, self.handle.length - position))
        view = np.empty(size, np.uint8).data
        return view[: await self.handle.read_into(position, view)] if size else view

    # ---- writing ----

    async def write(self, data: object) -> int:
        """Write all of `data`. Small pieces are buffered until a chunk is full, or until `flush` or `close`."""
        self.check_usable(writing=True)
        view = byte_view(data)
        await self.handle.recheck_quota()
        if not self.write_buffered(view):
            await (self._append(view) if self._mode.append else self._write(view))
        return len(view)

    def write_buffered(self, view: memoryview) -> bool:
        """`write` without I/O. False when I/O is needed."""
        position = self.length if self._mode.append else self._position
        self.handle.check_write(position, len(view))
        if len(view) >= self._write_buffer.room(position):
            return False
        self._write_buffer.append(position, view)
        self._read_ahead.clear()
        self._position = position + len(view)
        return True

    async def _append(self, view: memoryview) -> None:
        """Append in one piece: appends of several clients never interleave or overlap."""
        await self.flush_buffer()
        self._read_ahead.clear()
        self._position = await self.handle.append(view)

    async def _write(self, view: memoryview) -> None:
        position = self._position
        self._read_ahead.clear()
        while len(view):
            room = self._write_buffer.room(position)
            if room and (len(self._write_buffer) or len(view) < room):
                part = view[:room]
                self._write_buffer.append(position, part)
                if self._write_buffer.is_full:
                    await self.flush_buffer()
            elif len(self._write_buffer):
                await self.flush_buffer()
                continue
            else:  # straight from the caller's memory, as much as fills whole buffers
                part = view[
                    : room + (len(view) - room) // self._write_buffer.size_bytes * self._write_buffer.size_bytes
                ]
                await self.handle.write(position, part)
            position += len(part)
            self._position = position
            view = view[len(part) :]

    async def flush_buffer(self) -> None:
        """Send the buffered writes."""
        while len(self._write_buffer):
            offset, data = self._write_buffer.drain()
            sent = 0
            try:
                if self._mode.append:
                    sent = await self._append_buffered(memoryview(data))
                else:
                    await self.handle.write(offset, memoryview(data))
                    sent = len(data)
            finally:
                if sent < len(data):
                    self._write_buffer.append(offset + sent, data[sent:])  # for a later flush

    async def _append_buffered(self, view: memoryview) -> int:
        """Append the beginning of these bytes; returns how many. Bytes with a range from a failed attempt are written
        to the same range, because they may be there already."""
        reserved = self._append_range
        if reserved is None or reserved.truncate_version != self.handle.file.truncate_version:
            wanted = self._reservation = self._reservation or (len(view), self.handle.context.meta.mutation())
            reserved = self._append_range = await self.handle.reserve_append(*wanted)
            self._reservation = None
        length = reserved.end - reserved.offset
        await self.handle.write_reserved(reserved, view[:length])
        self._append_range = None
        self._position = reserved.end
        return length

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
        self._read_ahead.clear()
        await self.handle.truncate(size)
        return size

    async def allocate(self, offset: int, length: int, mode: int = Allocation.RESERVE) -> None:
        """Do what fallocate(2) does: reserve room, punch a hole, or zero a range; see Allocation. The position stays.

        Durable when it returns. Raises InvalidArgument, NotSupported, FileTooLarge, QuotaExceeded, NoSpace.
        """
        self.check_usable(writing=True)
        await self.flush_buffer()
        self._read_ahead.clear()
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
            self._lock = LockOwner(
                self.handle.context, self.handle.inode, self.handle.context.random.below(1 << 63), name=self.name
            )
        await self._lock.acquire(exclusive=exclusive, wait_s=wait_s)
        self._read_ahead.clear()
        try:
            await self.handle.refresh()
        except BaseException:
            self._lock.unlock_soon()  # after an error the caller has no lock
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
            self._read_ahead.clear()
            try:
                await self.handle.close()
            finally:
                await self.unlock()

    def drop_read_ahead(self) -> None:
        """The file is written past this object, so bytes that were read ahead are out of date."""
        self._read_ahead.clear()

    def drop_after_fork(self) -> None:
        """In a forked child: drop the buffered writes and the lock, which belong to the parent."""
        self._write_buffer.clear()
        self._append_range = self._reservation = None
        self._lock = None

    async def __aenter__(self) -> "AsyncFile":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
