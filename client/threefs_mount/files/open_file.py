"""A file that is open here. All its open handles share what is held of it, its length and its write session."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import numpy as np
import structlog
from threefs_client.context import ClientContext
from threefs_client.data import fallocate, sparse
from threefs_client.data.copy_range import copy_range
from threefs_client.data.handles import Handle
from threefs_client.data.hole_retry import HoleRetry

from threefs.errors import LockLost, QuotaExceeded, ThreefsError, Unavailable
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.dirty_extents import DirtyExtents, Extent, clip, covers, overlay
from threefs_mount.files.errseq import Errseq
from threefs_mount.files.short_reads import ShortReads
from threefs_mount.files.write_budget import WriteBudget

#: So many held bytes are sent while programs go on writing.
FLUSH_BYTES = 4 << 20
#: Or so many pieces of them: each read looks through them.
FLUSH_PIECES = 4096
_PAGE_BYTES = 4096
#: A program that writes faster than that is held up.
MAX_UNSENT_BYTES = 4 * FLUSH_BYTES

_LOG = structlog.get_logger()


class OpenFile:
    def __init__(
        self, context: ClientContext, inode: pb.Inode, budget: WriteBudget, session: bytes = b"", lease: int = 0
    ) -> None:
        """`session` has been opened for it under that lease."""
        self.inode = inode
        self.open_handles = 0  # open handles
        self.writable_handles = 0  # those that may write
        self.revalidated_change = -1  # the change as of which the kernel last gave up its pages of it
        self.revalidation = 0  # number of the last time
        self.has_pages = False  # the kernel may keep some of it
        self._reads = ShortReads()
        self._context = context
        self._budget = budget
        self._handle = Handle(context, inode, session, lease)
        self._session = session
        self._lease = lease
        self._extents = DirtyExtents(self._handle.layout.chunk_bytes)
        self._in_flight: list[Extent] = []  # of it, what is on its way
        self._pending_append = bytearray()  # appended; where it lies is decided when it is sent
        self._append_in_flight = 0  # bytes of it that are being sent
        self._append_start = 0  # length before them
        self._flush_lock = asyncio.Lock()  # one round at a time: what is written later must arrive later
        self._flush_task: asyncio.Task[None] | None = None
        self._flush_again = False  # one more of them
        self.errors = Errseq()  # of sending
        self.on_lost: Callable[[int], None] = lambda inode: None  # is told when something is lost
        self._dirty_ns = 0  # time of the last write that the meta service does not know of
        self._dirty_since_s = 0.0  # monotonic time of the first one
        self._write_end = 0  # end of the writes since then
        self.session_lock = asyncio.Lock()  # who holds it may open or end the session

    # ---- what is known of it ----

    def apply_inode(self, inode: pb.Inode) -> None:
        """The meta service has said what it knows."""
        if inode.truncate_version != self.inode.truncate_version and not self.unsent_bytes:
            self._write_end = 0
        self.inode = inode
        self._handle.file.apply_inode(inode)

    def apply_own_change(self, inode: pb.Inode) -> None:
        """The answer to a change that was made here."""
        self._handle.apply_reply(inode)
        self.apply_inode(inode)

    @property
    def pages_change(self) -> int:
        """The change as of which the kernel has its pages, or later if only we have changed the file since."""
        return self._handle.change

    def set_pages_change(self, change: int) -> None:
        """The kernel has just given up its pages, or they are known to be of that change."""
        self._handle.change = change

    def overlay_local(self, inode: pb.Inode) -> pb.Inode:
        """The same with what has been written here since."""
        self.apply_inode(inode)
        if self._handle.caller is not None:
            inode.mode = mode_after_write(inode, self._handle.caller)
        if self.dirty:
            inode.length = self.length
            inode.mtime_ns = max(inode.mtime_ns, self._dirty_ns)
            inode.ctime_ns = max(inode.ctime_ns, self._dirty_ns)
        return inode

    @property
    def length(self) -> int:
        return max(self._length_before_append, self._append_start + self._append_in_flight) + len(self._pending_append)

    @property
    def _length_before_append(self) -> int:
        return max(self._handle.length, self._write_end)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not been sent."""
        return self._extents.size + len(self._pending_append)

    @property
    def dirty(self) -> bool:
        """Something was written that others cannot see yet."""
        return self._dirty_ns != 0

    @property
    def needs_sync(self) -> bool:
        """`settle` has something to do."""
        return self.dirty

    @property
    def is_clean(self) -> bool:
        """All is settled and nothing is under way: nobody can tell whether a session of it ends now or later."""
        return not (self.needs_sync or self.unsent_bytes or self._handle.needs_sync or self._flush_lock.locked())

    def dirty_longer_than(self, seconds: float) -> bool:
        """Something was written that long ago, and others cannot see it yet."""
        return self.dirty and self._context.clock.monotonic() - self._dirty_since_s > seconds

    # ---- sessions ----

    @property
    def session(self) -> bytes:
        """The write session; empty if there is none, or it was lost with the lease of this process."""
        return self._session if self._lease >= self._context.lease.number else b""

    @property
    def has_session(self) -> bool:
        """Lost or not, it is to be ended."""
        return bool(self._session)

    async def start_session(self, inode: pb.Inode, session: bytes, lease: int) -> None:
        """A write session has been opened for it under that lease; writing may go on."""
        written_end = self._handle.file.written_end
        same_content = inode.truncate_version == self.inode.truncate_version
        caller = self._handle.caller
        lost, self._session = self._session, b""
        if not lost:
            await self._handle.close()  # as open for reading
        else:
            self._context.lease.release()
        self.inode = inode
        self._session, self._lease = session, lease
        self._replace_handle(Handle(self._context, inode, session, lease, caller))
        if lost and written_end and same_content:
            self._handle.record_write(
                written_end, truncate_version=inode.truncate_version, outcome_unknown=True
            )  # nobody has settled it

    async def end_session(self) -> None:
        """Settle everything and end the session. What is lost with that is in `errors`."""
        try:
            await self._sync(self._handle.close)
        finally:
            self._drop_session()

    def close_request(self) -> pb.CloseRequest:
        """The call that ends the session of a file at rest; call `ended` after it."""
        return self._handle.close_request()

    def session_closed(self, request: pb.CloseRequest, error: ThreefsError | None) -> None:
        """The call has been answered, or has failed."""
        if error is None:
            self._context.lease.release()
        else:
            self._context.session_closer.close_later(request, None, self._lease, error)
        self._drop_session()

    def _drop_session(self) -> None:
        """Who has it open still goes on reading."""
        self._session = b""
        if self.open_handles:
            self._replace_handle(Handle(self._context, self.inode, b""))

    def _replace_handle(self, handle: Handle) -> None:
        handle.change = self._handle.change  # the kernel has its pages all the same
        self._handle = handle

    async def release(self) -> None:
        """The last handle is closed."""
        if self._session:
            await self.end_session()
        else:
            await self._handle.close()

    def release_now(self) -> None:
        """The same for a file without a session."""
        self._handle.close_reading()

    # ---- reading ----

    async def read(self, offset: int, size: int, *, past_cache: bool = False) -> memoryview:
        """Fewer bytes only at the end of the file. `past_cache`: the kernel has not asked before where that is now."""
        number = self._reads.begin(offset)
        try:
            view = await self._read_to_end(offset, size, past_cache)
            if len(view) < size:
                await self._reads.wait_for_earlier(number)
            return view
        finally:
            self._reads.end(number)

    async def _read_to_end(self, offset: int, size: int, past_cache: bool) -> memoryview:
        # The kernel asks up to the end of the last page. Is that further than we know of, it knows a later length, and
        # would fill a shorter answer with zeros.
        end = self.length if past_cache else -(-self.length // _PAGE_BYTES) * _PAGE_BYTES
        if offset >= self.length or offset + size > end:  # somebody else may have made it longer
            await self._handle.refresh()
        self._context.atime_reporter.record_read(self._handle.file)
        self.has_pages = True
        patience: HoleRetry | None = None
        while (size := min(size, self.length - offset)) > 0:
            change = self._handle.file.change
            view, holes = await self._read(offset, size)
            if not holes:
                return view
            patience = patience or HoleRetry(self._context, self._handle.file, self._session)
            if await patience.holes_are_final(offset, offset + size, change):
                return view[: max(0, self.length - offset)]
        return memoryview(b"")

    async def _read(self, offset: int, size: int) -> tuple[memoryview, bool]:
        """What is there, with what is held over it; whether there are holes."""
        while self._must_flush_before_read(offset, size):
            await self.flush()
        view = np.empty(size, np.uint8).data
        # What is being sent may arrive before or after the chunks are read: it is laid over them, and what came later
        # over it.
        ours = [*clip(self._in_flight, offset, size), *self._extents.copies_of(offset, size)]
        holes = not covers(ours, offset, size) and await self._context.reader.read_into(
            [(self._handle.file, offset, view)], self._context.deadline()
        )
        overlay(ours, offset, view)
        return view, holes

    def _must_flush_before_read(self, offset: int, size: int) -> bool:
        """Whether only a round of sending can tell what a range holds."""
        if self._pending_append and offset + size > self._length_before_append:
            return True  # where it lies is not decided
        # Else what is on its way is known, or the file is being appended to, cut, filled or copied to.
        return self._flush_lock.locked() and not self._in_flight

    # ---- writing ----

    async def write(self, offset: int, data: bytes | memoryview) -> None:
        """Take a copy of the bytes; they are sent when there are enough of them, or by `send` or `settle`."""
        if self.try_write(offset, data):
            return
        await self._check_quota(offset + len(data))
        if self._pending_append or self._append_in_flight:
            await self.flush()
        await self._budget.take(len(data))
        self._add(offset, data)
        if self.unsent_bytes >= MAX_UNSENT_BYTES:
            await self.flush()

    def try_write(self, offset: int, data: bytes | memoryview) -> bool:
        """The same without I/O: False when that is needed."""
        self._handle.check_writable(offset, len(data))
        if self._handle.over_quota or self._pending_append or self._append_in_flight or not self._reserve(len(data)):
            return False  # what was appended before has its place before
        self._add(offset, data)
        if self.unsent_bytes >= FLUSH_BYTES or self._extents.pieces >= FLUSH_PIECES:
            self.start_flush()
        return True

    def discard(self) -> None:
        """Locks on it were lost, so nothing that is held may be sent. What is on its way is refused by storage, if
        somebody else has had a lock since."""
        size = self.unsent_bytes
        if size:
            self._extents.drain()
            self._pending_append = bytearray()
            self._budget.give(size)
            self.errors.record(LockLost("a lock on the file was lost, and with it what was written and not synced"))
            self.on_lost(self.inode.inode)

    def note_quota(self, over: bool) -> None:
        """The meta service has said whether the file may become longer."""
        self._handle.over_quota = over

    async def _check_quota(self, end: int) -> None:
        """Raises QuotaExceeded. Bytes that are held count as written: they were taken before."""
        if self._handle.over_quota and end > self.length:
            await self._handle.recheck_quota()
            if self._handle.over_quota:
                raise QuotaExceeded("the quota is used up: the file cannot become longer")

    def _reserve(self, size: int) -> bool:
        """Whether so many bytes can be held without waiting; if so, they are counted."""
        return self.unsent_bytes + size < MAX_UNSENT_BYTES and self._budget.try_take(size)

    async def append(self, data: bytes | memoryview) -> None:
        """Take a copy of bytes that come behind all that anybody has written, whenever they are sent."""
        if self.try_append(data):
            return
        await self._check_quota(self.length + len(data))
        await self._budget.take(len(data))
        self._add_appended(data)
        if self.unsent_bytes >= MAX_UNSENT_BYTES:
            await self.flush()

    def try_append(self, data: bytes | memoryview) -> bool:
        """The same without I/O: False when that is needed."""
        self._handle.check_writable(self.length, len(data))
        if self._handle.over_quota or not self._reserve(len(data)):
            return False
        self._add_appended(data)
        if self.unsent_bytes >= FLUSH_BYTES:
            self.start_flush()
        return True

    def _add_appended(self, data: bytes | memoryview) -> None:
        self._pending_append += data
        self._note_write()

    def _add(self, offset: int, data: bytes | memoryview) -> None:
        kept = self._extents.add(offset, data)
        self._budget.give(len(data) - kept)
        self._note_write()
        self._write_end = max(self._write_end, offset + len(data))
        self.has_pages = True

    def _note_write(self) -> None:
        if not self._dirty_ns:
            self._dirty_since_s = self._context.clock.monotonic()
        self._dirty_ns = self._context.clock.wall_ns()

    def clear_privileges(self, caller: pb.Caller) -> bool:
        """Somebody writes in whose hands the file loses its privileges. Whether it has any."""
        self._handle.caller = caller
        return mode_after_write(self.inode, caller) != self.inode.mode

    def start_flush(self) -> None:
        """Send what is held in the background; `errors` has what is lost."""
        self._flush_again = True
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.create_task(self._flush_rounds())

    async def _flush_rounds(self) -> None:
        while self._flush_again:  # also what came during a round: somebody may wait for its room
            self._flush_again = False
            await self._flush()

    async def flush(self) -> None:
        """Send all that is held, and wait until it is durable. Raises what went wrong meanwhile.

        Who stops waiting does not stop it: what was taken to be sent is nowhere else.
        """
        before = self.errors.current
        await asyncio.shield(asyncio.ensure_future(self._flush()))
        failure = self.errors.check(before)
        if failure is not None:
            raise failure

    async def _flush(self) -> None:
        async with self._flush_lock:
            await self._recording_errors(self._flush_extents)
            if self._pending_append:
                await self._recording_errors(self._flush_extents)  # what was written meanwhile, before it was appended
                await self._recording_errors(self._flush_append)
            with contextlib.suppress(ThreefsError):  # nothing is lost: it is reported again
                await self._handle.sync_for_quota()

    async def _recording_errors(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:  # of whatever kind: what was taken to be sent is nowhere else
            unforeseen = not isinstance(error, ThreefsError)
            _LOG.warning("what was written is lost", inode=self.inode.inode, error=str(error), exc_info=unforeseen)
            self.errors.record(error)
            self.on_lost(self.inode.inode)

    async def _flush_extents(self) -> None:
        size = self._extents.size
        extents = self._in_flight = self._extents.drain()
        if not extents:
            return
        handle = self._handle  # whatever comes after it is under another fence
        since = handle.file.truncate_version
        try:
            await handle.apply(lambda: [update for offset, data in extents for update in handle.updates(offset, data)])
        except BaseException as error:  # part of it may be there
            self._handle.record_write(outcome_unknown=not isinstance(error, Unavailable))
            raise
        finally:
            self._in_flight = []
            self._budget.give(size)
        self._handle.record_write(max(offset + len(data) for offset, data in extents), truncate_version=since)

    async def _flush_append(self) -> None:
        """The meta service says where it lies. It must know before what was written here and makes the file longer."""
        data, self._pending_append = self._pending_append, bytearray()
        self._append_in_flight, self._append_start = len(data), self._length_before_append
        handle = self._handle
        try:
            await handle.sync()
            await handle.append(memoryview(data))
        except BaseException as error:  # part of it may be there
            self._handle.record_write(outcome_unknown=not isinstance(error, Unavailable))
            raise
        finally:
            self._append_in_flight = self._append_start = 0
            self._budget.give(len(data))

    async def sync(self) -> None:
        """All is durable, and others see the length. Raises what went wrong meanwhile; what was lost before is in
        `errors`."""
        if self.needs_sync:
            await self._sync(self._handle.sync)

    async def _sync(self, finish: Callable[[], Awaitable[None]]) -> None:
        failure: ThreefsError | None = None
        began_s = self._context.clock.monotonic()
        try:
            await self.flush()
        except ThreefsError as error:  # the length of what did arrive is settled all the same
            failure = error
        dirty_ns = self._dirty_ns
        await finish()
        if self._dirty_ns == dirty_ns and not self.unsent_bytes:
            self._dirty_ns = self._write_end = 0
            self._handle.caller = None
        self._dirty_since_s = began_s  # what is left came later
        if failure is not None:
            raise failure

    # ---- changing ----

    async def truncate(
        self, length: int, caller: pb.Caller, *, through_handle: bool = False, moves: int | None = None
    ) -> pb.Inode:
        """An open handle stands for the permission to write. Else it is the file that had moved so often."""
        await self.flush()
        request = pb.TruncateRequest(
            mutation=self._context.meta.mutation(),
            place=pb.Place(base=self.inode.inode, named=not through_handle, moves=moves),
            length=length,
            session=self.session if through_handle else b"",
        )
        async with self._flush_lock:
            reply = await self._context.meta.call(
                methods.TRUNCATE, request, timeout_s=self._context.options.timeout_s, caller=caller
            )
            self._handle.file.written_end = self._write_end = 0
            self.apply_own_change(reply.inode)
        return self.inode

    async def allocate(self, offset: int, length: int, mode: int) -> None:
        """What fallocate(2) does; the numbers of the modes are the same."""
        await self.flush()
        async with self._flush_lock:
            await fallocate.allocate(self._handle, offset, length, mode)

    async def seek_data(self, offset: int) -> int:
        await self.flush()
        return await sparse.seek_data(self._handle, offset)

    async def seek_hole(self, offset: int) -> int:
        await self.flush()
        return await sparse.seek_hole(self._handle, offset)

    async def copy_to(self, offset: int, destination: "OpenFile", at: int, length: int) -> int:
        """Up to `length` bytes, durable when it returns; how many."""
        await self.sync()
        await destination.sync()
        async with destination._flush_lock:
            copied = await copy_range(self._handle, offset, destination._handle, at, length)
            destination._note_write()
        await destination.sync()
        return copied


def mode_after_write(inode: pb.Inode, caller: pb.Caller) -> int:
    """What a write leaves of the mode: set-group-id means a privilege where the group may execute, and else a mark that
    members of the group may keep."""
    mode = inode.mode & ~0o4000
    if mode & 0o010 or (caller.uid and inode.gid != caller.gid and inode.gid not in caller.groups):
        mode &= ~0o2000
    return mode
