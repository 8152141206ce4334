"""An open file of the mount. All its handles share its unsent bytes, its length and its write session."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import numpy as np
from threefs_client.context import ClientContext
from threefs_client.data import fallocate, sparse
from threefs_client.data.copy_range import copy_range
from threefs_client.data.dirty_extents import covers, overlay
from threefs_client.data.errseq import Errseq
from threefs_client.data.handles import Handle
from threefs_client.data.hole_retry import HoleRetry
from threefs_client.data.write_behind import FLUSH_BYTES, MAX_UNSENT_BYTES, WriteBehind
from threefs_client.data.write_budget import WriteBudget

from threefs.errors import LockLost, NotFound, QuotaExceeded, SessionLost, ThreefsError
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_mount.files.short_reads import ShortReads
from threefs_mount.kernel.credentials import mode_after_write

_PAGE_BYTES = 4096
#: How long bytes wait for a renewal of the lease before they are sent. If no service answers, nothing shows that the
#: session has ended.
_RENEWAL_S = 5.0


class OpenFile:
    def __init__(
        self, context: ClientContext, inode: pb.Inode, budget: WriteBudget, session: bytes = b"", lease: int = 0
    ) -> None:
        """`session` is a write session that was opened under the lease with that number; empty: none."""
        self.open_handles = 0
        self.writable_handles = 0
        self.revalidated_change = -1  # change counter when the kernel last dropped its pages for a lock
        self.revalidation = 0  # generation of that time, see lock_revalidation.py
        self.has_pages = False  # the kernel may have pages of it
        self._reads = ShortReads()
        self._context = context
        self._handle = Handle(context, inode, session, lease)
        self._session, self._lease = session, lease
        self._writes = WriteBehind(
            self._handle, budget, before_extents=self._confirm_session, after_extents=self._flush_after_extents
        )
        self._writes.on_lost = lambda: self.on_lost(self.inode.inode)
        self._pending_append = bytearray()  # appended bytes, whose offset is decided when they are sent
        self._append_in_flight = 0  # appended bytes that are being sent
        self._append_start = 0  # the length before them
        self.on_lost: Callable[[int], None] = lambda inode: None  # is called when written bytes were lost
        self.on_privileges_dropped: Callable[[int], None] = lambda inode: None  # a write has taken them away
        self._write_count = 0  # of writes
        self._dirty_ns = 0  # time of the last write that the meta service does not know of
        self._dirty_since_s = 0.0  # monotonic time of the first such write
        self._drops_privileges = False  # one of these writes does, and the meta service does not know it
        self.session_lock = asyncio.Lock()  # protects opening and ending of the session
        self.reopen: Callable[[OpenFile], Awaitable[None]]  # starts a new session for one that was lost
        self._reopening = asyncio.Lock()

    # ---- attributes ----

    @property
    def inode(self) -> pb.Inode:
        """The newest answer of the meta service, not to be changed."""
        newest = self._handle.file.newest
        assert newest is not None, "a handle is made of an answer"
        return newest

    def apply_inode(self, inode: pb.Inode) -> None:
        """Take over the answer of the meta service, unless a newer one is known."""
        self._handle.file.apply_inode(inode, self._context.lease.number)

    def apply_own_change(self, inode: pb.Inode) -> None:
        """Take over the answer to a change that this mount made."""
        self._handle.apply_reply(inode)
        self.apply_inode(inode)

    @property
    def pages_change(self) -> int:
        """The change counter to which the kernel's pages belong; a later one if only this mount has changed the file
        since."""
        return self._handle.change

    def set_pages_change(self, change: int) -> None:
        """The kernel has just dropped its pages, or they belong to that change counter."""
        self._handle.change = change

    def overlay_local(self, inode: pb.Inode) -> pb.Inode:
        """The inode with the writes of this mount that the meta service does not know of. If the answer is late, the
        newest one takes its place; but not its count of moves, because the name was found before these."""
        self.apply_inode(inode)
        if inode is self.inode and not self._dirty_ns:
            return inode
        shown = pb.Inode()
        shown.CopyFrom(self.inode)
        shown.moves = inode.moves
        if self._handle.caller is not None:
            shown.mode = mode_after_write(shown, self._handle.caller)
        if self._dirty_ns:
            shown.length = self.length
            shown.mtime_ns = self._handle.shown_ns = max(shown.mtime_ns, self._dirty_ns)
            shown.ctime_ns = max(shown.ctime_ns, self._dirty_ns)
        return shown

    @property
    def length(self) -> int:
        return max(self._length_before_append, self._append_start + self._append_in_flight) + len(self._pending_append)

    @property
    def _length_before_append(self) -> int:
        return max(self._handle.length, self._writes.end)

    @property
    def errors(self) -> Errseq:
        """The write errors of the file."""
        return self._writes.errors

    @property
    def unsent_bytes(self) -> int:
        """Written bytes that are not sent yet."""
        return self._writes.unsent_bytes + len(self._pending_append)

    @property
    def dirty(self) -> bool:
        """There are writes that other clients cannot see yet, or a change has failed halfway: `sync` tells of it."""
        return self._dirty_ns != 0 or self._handle.needs_sync

    @property
    def is_clean(self) -> bool:
        """Everything is synced and no flush is under way, so the session may as well end later."""
        return not (self.dirty or self.unsent_bytes or self._writes.lock.locked())

    def dirty_longer_than(self, seconds: float) -> bool:
        """There is a write of longer ago that other clients cannot see yet."""
        return self.dirty and self._context.clock.monotonic() - self._dirty_since_s > seconds

    # ---- sessions ----

    @property
    def session(self) -> bytes:
        """The write session. Empty if there is none, or it was lost with the lease of this process."""
        return self._session if self._lease >= self._context.lease.number else b""

    @property
    def has_session(self) -> bool:
        """There is a session to end, lost or not."""
        return bool(self._session)

    async def start_session(self, inode: pb.Inode, session: bytes, lease: int) -> None:
        """A write session was opened for the file under the lease with that number. Writing may go on."""
        earlier, lost, self._session = self._handle, self._session, b""
        if not lost:
            await earlier.close()  # as open for reading
        else:
            self._context.lease.release()
        self._session, self._lease = session, lease
        self._replace_handle(Handle(self._context, inode, session, lease, earlier.caller))
        if lost:
            self._handle.report_for(earlier)

    async def ensure_session(self) -> None:
        """If the session was lost, open the file again. Raises SessionLost if the file was removed."""
        async with self._reopening:
            if not self.session:
                try:
                    await self.reopen(self)
                except NotFound:
                    raise content_gone() from None

    async def _confirm_session(self) -> None:
        """Before bytes are sent: without a session the file may be gone, and they would belong to none. Raises
        SessionLost, and LockLost if they were written under a lock that was lost."""
        losses = self._writes.losses
        if not self._context.lease.is_valid:
            with contextlib.suppress(ThreefsError, TimeoutError):
                async with asyncio.timeout(_RENEWAL_S):
                    await self._context.lease.revalidate()
        if self._session and not self.session:
            await self.ensure_session()
        if self._writes.losses != losses:
            raise _lock_lost()

    async def end_session(self) -> None:
        """Sync everything and end the session. `errors` records what is lost."""
        try:
            await self._sync(lambda: self._handle.close())
        finally:
            self._drop_session()

    def close_request(self) -> pb.CloseRequest:
        """The request that ends the session of a clean file. Call `session_closed` with its outcome."""
        return self._handle.close_request()

    def session_closed(self, request: pb.CloseRequest, error: ThreefsError | None) -> None:
        """The request was answered, or failed with `error`."""
        if error is None:
            self._context.lease.release()
        else:
            self._context.session_closer.close_later(request, None, self._lease, error)
        self._drop_session()

    def _drop_session(self) -> None:
        """Forget the session. Handles that are still open can read."""
        self._session = b""
        if self.open_handles:
            handle = Handle(self._context, self.inode, b"")
            handle.file = self._handle.file
            self._replace_handle(handle)

    def _replace_handle(self, handle: Handle) -> None:
        handle.change = self._handle.change  # the kernel still has the same pages
        handle.file.apply_known(self._handle.file)
        self._handle = self._writes.handle = handle

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
        """Read; fewer bytes only at the end of the file. `past_cache`: the read does not come from the kernel's cache,
        so the kernel has not just asked for the length."""
        number = self._reads.begin(offset)
        try:
            view = await self._read_to_end(offset, size, past_cache)
            if len(view) < size:
                await self._reads.wait_for_earlier(number)
            return view
        except NotFound:
            raise content_gone() from None
        finally:
            self._reads.end(number)

    async def _read_to_end(self, offset: int, size: int, past_cache: bool) -> memoryview:
        # The kernel's cache reads whole pages. If the read goes beyond the last page that we know of, the kernel knows
        # a greater length, and would fill up a shorter answer with zeros.
        end = self.length if past_cache else -(-self.length // _PAGE_BYTES) * _PAGE_BYTES
        if offset >= self.length or offset + size > end:  # another client may have extended it
            await self._handle.refresh()
        self._context.atime_reporter.record_read(self._handle.file)
        self.has_pages = True
        retry: HoleRetry | None = None
        while (size := min(size, self.length - offset)) > 0:
            change = self._handle.file.change
            view, holes = await self._read(offset, size)
            if not holes:
                return view
            retry = retry or HoleRetry(self._context, self._handle.file, self._session)
            if await retry.holes_are_final(offset, offset + size, change):
                return view[: max(0, self.length - offset)]
        return memoryview(b"")

    async def _read(self, offset: int, size: int) -> tuple[memoryview, bool]:
        """The stored bytes, overlaid with unsent ones; and whether there are holes."""
        while self._must_flush_before_read(offset, size):
            await self.settle()
        view = np.empty(size, np.uint8).data
        # Bytes in flight may arrive before or after the chunks are read. So they are overlaid, and later writes over
        # them.
        local = self._writes.extents_of(offset, size)
        holes = not covers(local, offset, size) and await self._context.reader.read_into(
            [(self._handle.file, offset, view)], self._context.deadline()
        )
        overlay(local, offset, view)
        return view, holes

    def _must_flush_before_read(self, offset: int, size: int) -> bool:
        """Whether the content of a range is known only after a flush."""
        if self._pending_append and offset + size > self._length_before_append:
            return True  # the offset of the appended bytes is not decided
        # With the lock held and no extents in flight, the file is being appended to, truncated, allocated or copied to.
        return self._writes.lock.locked() and not self._writes.is_sending

    # ---- writing ----

    async def write(self, offset: int, data: bytes | memoryview, writer: pb.Caller | None = None) -> None:
        """Keep a copy of the bytes. They are sent when there are enough of them, or by `flush` or `sync`. A `writer`
        may not write and leave the file its privileges (set-user-id, set-group-id)."""
        if self.try_write(offset, data, writer):
            return
        losses = self._writes.losses
        await self._check_quota(offset + len(data))
        if self._pending_append or self._append_in_flight:
            await self.flush()
        await self._writes.add(offset, data, losses)
        self._record_write(writer)

    def try_write(self, offset: int, data: bytes | memoryview, writer: pb.Caller | None = None) -> bool:
        """`write` without I/O. False when I/O is needed."""
        self._handle.check_writable(offset, len(data))
        if self._handle.over_quota or self._pending_append or self._append_in_flight:
            return False  # earlier appends must get their offset first
        if not self._writes.try_add(offset, data):
            return False
        self._record_write(writer)
        return True

    def discard(self) -> None:
        """Locks on the file were lost, so unsent bytes must not be sent any more. Storage refuses bytes in flight if
        another client has had a lock since."""
        appended, self._pending_append = len(self._pending_append), bytearray()
        self._writes.discard(_lock_lost(), appended)

    def set_over_quota(self, over: bool) -> None:
        """The meta service has answered whether the quota is used up, so that the file may not become longer."""
        self._handle.over_quota = over

    async def _check_quota(self, end: int) -> None:
        """Raises QuotaExceeded. Unsent bytes count as written: they were accepted before."""
        if self._handle.over_quota and end > self.length:
            await self._handle.recheck_quota()
            if self._handle.over_quota:
                raise QuotaExceeded(
                    f"the quota is used up: the file cannot become longer than {self.length} bytes; remove something, "
                    "or ask for a higher quota"
                )

    async def append(self, data: bytes | memoryview, writer: pb.Caller | None = None) -> None:
        """Keep a copy of the bytes. When they are sent, they get their place behind everything that any client has
        written."""
        if self.try_append(data, writer):
            return
        losses = self._writes.losses
        await self._check_quota(self.length + len(data))
        await self._writes.take_budget(len(data), losses)
        self._add_appended(data, writer)
        if self.unsent_bytes >= MAX_UNSENT_BYTES:
            await self.flush()

    def try_append(self, data: bytes | memoryview, writer: pb.Caller | None = None) -> bool:
        """`append` without I/O. False when I/O is needed."""
        self._handle.check_writable(self.length, len(data))
        if self._handle.over_quota or self.unsent_bytes + len(data) >= MAX_UNSENT_BYTES:
            return False
        if not self._writes.try_take_budget(len(data)):
            return False
        self._add_appended(data, writer)
        if self.unsent_bytes >= FLUSH_BYTES:
            self.start_flush()
        return True

    def _add_appended(self, data: bytes | memoryview, writer: pb.Caller | None) -> None:
        self._pending_append += data
        self._record_write_time(writer)

    def _record_write(self, writer: pb.Caller | None) -> None:
        self._record_write_time(writer)
        self.has_pages = True

    def _record_write_time(self, writer: pb.Caller | None = None) -> None:
        """In the step that takes the bytes, so that no `sync` reports them as those of somebody else."""
        if not self._dirty_ns:
            self._dirty_since_s = self._context.clock.monotonic()
        self._dirty_ns, self._handle.shown_ns = self._context.clock.wall_ns(), 0
        self._write_count += 1
        if writer is not None:
            self._handle.caller = writer
            if not self._drops_privileges and mode_after_write(self.inode, writer) != self.inode.mode:
                self._drops_privileges = True
                self.on_privileges_dropped(self.inode.inode)

    def start_flush(self) -> None:
        """Send the unsent bytes in the background. `errors` records what is lost."""
        self._writes.start_flush()

    async def flush(self) -> None:
        """Send the unsent bytes, and wait until they are durable. Earlier writes have taken effect then, or never will.
        Raises the error of this flush. Cancelling the call does not stop it: the bytes in flight are nowhere else."""
        await self._writes.flush()
        await self._handle.end_unknown_writes()

    async def settle(self) -> None:
        """The same for a read or a truncate, which does not fail because of lost bytes: `errors` has that."""
        with contextlib.suppress(Exception):
            await self._writes.flush()
        await self._handle.end_unknown_writes()

    async def _flush_after_extents(self) -> None:
        if self._pending_append:
            await self._writes.send_extents()  # writes that came before the appends
            try:
                await self._flush_append()
            except Exception as error:  # of any kind: the bytes that it has drained are nowhere else
                self._writes.lost(error)

    async def _flush_append(self) -> None:
        """The meta service decides the offset. Before that it must know of writes of this mount that extend the
        file."""
        data, self._pending_append = self._pending_append, bytearray()
        losses = self._writes.losses
        self._append_in_flight, self._append_start = len(data), self._length_before_append
        try:
            await self._confirm_session()
            await self._handle.sync()
            if self._writes.losses != losses:  # a program may have opened the file anew, with a fence that is valid
                raise _lock_lost()
            await self._handle.append(memoryview(data))
        except BaseException:  # part of it may be there, whatever the error of one chunk is
            self._handle.record_write(outcome_unknown=True)
            raise
        finally:
            self._append_in_flight = self._append_start = 0
            self._writes.give_budget(len(data))

    async def sync(self, *, only_data: bool = False) -> None:
        """Make all writes durable and visible to other clients. Raises the error of this sync; `errors` has earlier
        ones. With `only_data` (fdatasync), writes that leave the length as it was become visible with the next
        sync, which comes within two seconds: a database waits for the disks of the replicas and not for its mtime."""
        if not self.dirty:
            return
        if only_data:
            await self.flush()
            if self._handle.length_is_reported and not self._drops_privileges:
                return
        await self._sync(lambda: self._handle.sync())

    async def _sync(self, finish: Callable[[], Awaitable[None]]) -> None:
        failure: ThreefsError | None = None
        began_s, write_count = self._context.clock.monotonic(), self._write_count
        try:
            await self.flush()
        except ThreefsError as error:  # the length of the bytes that did arrive is reported nevertheless
            failure = error
        try:
            await finish()
        except NotFound:
            raise failure or content_gone() from None
        if self._write_count == write_count:  # a later write may be in flight in a flush of its own
            self._dirty_ns = 0
            self._handle.caller, self._drops_privileges = None, False
        self._dirty_since_s = began_s  # writes that are left came later
        if failure is not None:
            raise failure

    # ---- changing ----

    async def truncate(
        self, length: int, caller: pb.Caller, *, through_handle: bool = False, moves: int | None = None
    ) -> pb.Inode:
        """With `through_handle`, the open handle stands for the permission to write. Else `moves` says which name the
        program has used: the count of moves when the kernel got it."""
        await self.settle()
        request = pb.TruncateRequest(
            mutation=self._context.meta.mutation(),
            place=pb.Place(base=self.inode.inode, named=not through_handle, moves=moves),
            length=length,
            session=self.session if through_handle else b"",
        )
        async with self._writes.lock:
            reply = await self._context.meta.call(
                methods.TRUNCATE, request, timeout_s=self._context.options.timeout_s, caller=caller
            )
            self._handle.file.written_end = 0
            self.apply_own_change(reply.inode)
        return self.inode

    async def allocate(self, offset: int, length: int, mode: int) -> None:
        """Do what fallocate(2) does, with the same numbers of modes."""
        await self.flush()
        async with self._writes.lock:
            self._handle.shown_ns = 0  # the file changes after what programs have seen
            await fallocate.allocate(self._handle, offset, length, mode)

    async def seek_data(self, offset: int) -> int:
        await self.flush()
        return await sparse.seek_data(self._handle, offset)

    async def seek_hole(self, offset: int) -> int:
        await self.flush()
        return await sparse.seek_hole(self._handle, offset)

    async def copy_to(self, offset: int, destination: "OpenFile", at: int, length: int) -> int:
        """Copy up to `length` bytes; returns how many. They are durable then."""
        await self.sync()
        await destination.sync()
        async with destination._writes.lock:
            copied = await copy_range(self._handle, offset, destination._handle, at, length)
            destination._record_write_time()
        await destination.sync()
        return copied


def _lock_lost() -> LockLost:
    return LockLost("a lock on the file was lost, and with it the writes that were not synced; open it again")


def content_gone() -> SessionLost:
    """The program's descriptor leads to a file that exists no more."""
    return SessionLost("the file was removed while the lease of this mount had expired, and its content is gone")
