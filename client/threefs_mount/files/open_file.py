"""A file that is open here. All its open handles share what is held of it, its length and its write session."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

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
from threefs_mount.short_reads import ShortReads

#: So many held bytes are sent while programs go on writing.
SEND_BYTES = 4 << 20
#: Or so many pieces of them: each read looks through them.
SEND_PIECES = 4096
_PAGE_BYTES = 4096
#: A program that writes faster than that is held up.
MOST_BYTES = 4 * SEND_BYTES

_LOG = structlog.get_logger()


class Room(Protocol):
    """The bytes that all files together may hold."""

    def try_take(self, size: int) -> bool: ...

    async def take(self, size: int) -> None: ...

    def give(self, size: int) -> None: ...


class OpenFile:
    def __init__(self, link: ClientContext, inode: pb.Inode, room: Room, session: bytes = b"", lease: int = 0) -> None:
        """`session` has been opened for it under that lease."""
        self.inode = inode
        self.holders = 0  # open handles
        self.writers = 0  # those that may write
        self.renewed_at = -1  # the change as of which the kernel last gave up its pages of it
        self.renewal = 0  # number of the last time
        self.has_pages = False  # the kernel may keep some of it
        self._reads = ShortReads()
        self._link = link
        self._room = room
        self._handle = Handle(link, inode, session, lease)
        self._session = session
        self._lease = lease
        self._held = DirtyExtents(self._handle.layout.chunk_bytes)
        self._sent: list[Extent] = []  # of it, what is on its way
        self._tail = bytearray()  # appended; where it lies is decided when it is sent
        self._placing = 0  # bytes of it that are being sent
        self._placed_before = 0  # length before them
        self._sending = asyncio.Lock()  # one round at a time: what is written later must arrive later
        self._round: asyncio.Task[None] | None = None
        self._wanted = False  # one more of them
        self.errors = Errseq()  # of sending
        self.lost: Callable[[int], None] = lambda inode: None  # is told when something is lost
        self._dirty_ns = 0  # time of the last write that the meta service does not know of
        self._dirty_since_s = 0.0  # monotonic time of the first one
        self._reach = 0  # end of the writes since then
        self.turn = asyncio.Lock()  # who holds it may open or end the session

    # ---- what is known of it ----

    def learn(self, inode: pb.Inode) -> None:
        """The meta service has said what it knows."""
        if inode.truncate_version != self.inode.truncate_version and not self.holding:
            self._reach = 0
        self.inode = inode
        self._handle.file.apply_inode(inode)

    def changed(self, inode: pb.Inode) -> None:
        """The answer to a change that was made here."""
        self._handle.apply_reply(inode)
        self.learn(inode)

    @property
    def pages_change(self) -> int:
        """The change as of which the kernel has its pages, or later if only we have changed the file since."""
        return self._handle.change

    def pages_are_of(self, change: int) -> None:
        """The kernel has just given up its pages, or they are known to be of that change."""
        self._handle.change = change

    def shown(self, inode: pb.Inode) -> pb.Inode:
        """The same with what has been written here since."""
        self.learn(inode)
        if self._handle.caller is not None:
            inode.mode = written(inode, self._handle.caller)
        if self.dirty:
            inode.length = self.length
            inode.mtime_ns = max(inode.mtime_ns, self._dirty_ns)
            inode.ctime_ns = max(inode.ctime_ns, self._dirty_ns)
        return inode

    @property
    def length(self) -> int:
        return max(self._placed_length, self._placed_before + self._placing) + len(self._tail)

    @property
    def _placed_length(self) -> int:
        return max(self._handle.length, self._reach)

    @property
    def holding(self) -> int:
        """Bytes that have not been sent."""
        return self._held.size + len(self._tail)

    @property
    def dirty(self) -> bool:
        """Something was written that others cannot see yet."""
        return self._dirty_ns != 0

    @property
    def unsettled(self) -> bool:
        """`settle` has something to do."""
        return self.dirty

    @property
    def at_rest(self) -> bool:
        """All is settled and nothing is under way: nobody can tell whether a session of it ends now or later."""
        return not (self.unsettled or self.holding or self._handle.needs_sync or self._sending.locked())

    def waits_long(self, seconds: float) -> bool:
        """Something was written that long ago, and others cannot see it yet."""
        return self.dirty and self._link.clock.monotonic() - self._dirty_since_s > seconds

    # ---- sessions ----

    @property
    def session(self) -> bytes:
        """The write session; empty if there is none, or it was lost with the lease of this process."""
        return self._session if self._lease >= self._link.lease.number else b""

    @property
    def has_session(self) -> bool:
        """Lost or not, it is to be ended."""
        return bool(self._session)

    async def begin(self, inode: pb.Inode, session: bytes, lease: int) -> None:
        """A write session has been opened for it under that lease; writing may go on."""
        written_end = self._handle.file.written_end
        same_content = inode.truncate_version == self.inode.truncate_version
        caller = self._handle.caller
        lost, self._session = self._session, b""
        if not lost:
            await self._handle.close()  # as open for reading
        else:
            self._link.lease.release()
        self.inode = inode
        self._session, self._lease = session, lease
        self._replace(Handle(self._link, inode, session, lease, caller))
        if lost and written_end and same_content:
            self._handle.record_write(
                written_end, truncate_version=inode.truncate_version, outcome_unknown=True
            )  # nobody has settled it

    async def end(self) -> None:
        """Settle everything and end the session. What is lost with that is in `errors`."""
        try:
            await self._settle(self._handle.close)
        finally:
            self._without_session()

    def ending(self) -> pb.CloseRequest:
        """The call that ends the session of a file at rest; call `ended` after it."""
        return self._handle.close_request()

    def ended(self, request: pb.CloseRequest, error: ThreefsError | None) -> None:
        """The call has been answered, or has failed."""
        if error is None:
            self._link.lease.release()
        else:
            self._link.session_closer.close_later(request, None, self._lease, error)
        self._without_session()

    def _without_session(self) -> None:
        """Who has it open still goes on reading."""
        self._session = b""
        if self.holders:
            self._replace(Handle(self._link, self.inode, b""))

    def _replace(self, handle: Handle) -> None:
        handle.change = self._handle.change  # the kernel has its pages all the same
        self._handle = handle

    async def leave(self) -> None:
        """The last handle is closed."""
        if self._session:
            await self.end()
        else:
            await self._handle.close()

    def leave_at_once(self) -> None:
        """The same for a file without a session."""
        self._handle.close_reading()

    # ---- reading ----

    async def read(self, offset: int, size: int, *, past_cache: bool = False) -> memoryview:
        """Fewer bytes only at the end of the file. `past_cache`: the kernel has not asked before where that is now."""
        number = self._reads.begin(offset)
        try:
            view = await self._read_to_end(offset, size, past_cache)
            if len(view) < size:
                await self._reads.turn(number)
            return view
        finally:
            self._reads.end(number)

    async def _read_to_end(self, offset: int, size: int, past_cache: bool) -> memoryview:
        # The kernel asks up to the end of the last page. Is that further than we know of, it knows a later length, and
        # would fill a shorter answer with zeros.
        end = self.length if past_cache else -(-self.length // _PAGE_BYTES) * _PAGE_BYTES
        if offset >= self.length or offset + size > end:  # somebody else may have made it longer
            await self._handle.refresh()
        self._link.atime_reporter.record_read(self._handle.file)
        self.has_pages = True
        patience: HoleRetry | None = None
        while (size := min(size, self.length - offset)) > 0:
            change = self._handle.file.change
            view, holes = await self._read(offset, size)
            if not holes:
                return view
            patience = patience or HoleRetry(self._link, self._handle.file, self._session)
            if await patience.holes_are_final(offset, offset + size, change):
                return view[: max(0, self.length - offset)]
        return memoryview(b"")

    async def _read(self, offset: int, size: int) -> tuple[memoryview, bool]:
        """What is there, with what is held over it; whether there are holes."""
        while self._hides(offset, size):
            await self.send()
        view = np.empty(size, np.uint8).data
        # What is being sent may arrive before or after the chunks are read: it is laid over them, and what came later
        # over it.
        ours = [*clip(self._sent, offset, size), *self._held.over(offset, size)]
        holes = not covers(ours, offset, size) and await self._link.reader.read_into(
            [(self._handle.file, offset, view)], self._link.deadline()
        )
        overlay(ours, offset, view)
        return view, holes

    def _hides(self, offset: int, size: int) -> bool:
        """Whether only a round of sending can tell what a range holds."""
        if self._tail and offset + size > self._placed_length:
            return True  # where it lies is not decided
        # Else what is on its way is known, or the file is being appended to, cut, filled or copied to.
        return self._sending.locked() and not self._sent

    # ---- writing ----

    async def write(self, offset: int, data: bytes | memoryview) -> None:
        """Take a copy of the bytes; they are sent when there are enough of them, or by `send` or `settle`."""
        if self.write_at_once(offset, data):
            return
        await self._check_longer(offset + len(data))
        if self._tail or self._placing:
            await self.send()
        await self._room.take(len(data))
        self._hold(offset, data)
        if self.holding >= MOST_BYTES:
            await self.send()

    def write_at_once(self, offset: int, data: bytes | memoryview) -> bool:
        """The same without I/O: False when that is needed."""
        self._handle.check_writable(offset, len(data))
        if self._handle.over_quota or self._tail or self._placing or not self._takes(len(data)):
            return False  # what was appended before has its place before
        self._hold(offset, data)
        if self.holding >= SEND_BYTES or self._held.pieces >= SEND_PIECES:
            self.start_sending()
        return True

    def discard(self) -> None:
        """Locks on it were lost, so nothing that is held may be sent. What is on its way is refused by storage, if
        somebody else has had a lock since."""
        size = self.holding
        if size:
            self._held.take()
            self._tail = bytearray()
            self._room.give(size)
            self.errors.record(LockLost("a lock on the file was lost, and with it what was written and not synced"))
            self.lost(self.inode.inode)

    def note_quota(self, over: bool) -> None:
        """The meta service has said whether the file may become longer."""
        self._handle.over_quota = over

    async def _check_longer(self, end: int) -> None:
        """Raises QuotaExceeded. Bytes that are held count as written: they were taken before."""
        if self._handle.over_quota and end > self.length:
            await self._handle.recheck_quota()
            if self._handle.over_quota:
                raise QuotaExceeded("the quota is used up: the file cannot become longer")

    def _takes(self, size: int) -> bool:
        """Whether so many bytes can be held without waiting; if so, they are counted."""
        return self.holding + size < MOST_BYTES and self._room.try_take(size)

    async def append(self, data: bytes | memoryview) -> None:
        """Take a copy of bytes that come behind all that anybody has written, whenever they are sent."""
        if self.append_at_once(data):
            return
        await self._check_longer(self.length + len(data))
        await self._room.take(len(data))
        self._hold_appended(data)
        if self.holding >= MOST_BYTES:
            await self.send()

    def append_at_once(self, data: bytes | memoryview) -> bool:
        """The same without I/O: False when that is needed."""
        self._handle.check_writable(self.length, len(data))
        if self._handle.over_quota or not self._takes(len(data)):
            return False
        self._hold_appended(data)
        if self.holding >= SEND_BYTES:
            self.start_sending()
        return True

    def _hold_appended(self, data: bytes | memoryview) -> None:
        self._tail += data
        self._note_write()

    def _hold(self, offset: int, data: bytes | memoryview) -> None:
        kept = self._held.add(offset, data)
        self._room.give(len(data) - kept)
        self._note_write()
        self._reach = max(self._reach, offset + len(data))
        self.has_pages = True

    def _note_write(self) -> None:
        if not self._dirty_ns:
            self._dirty_since_s = self._link.clock.monotonic()
        self._dirty_ns = self._link.clock.wall_ns()

    def written_by(self, caller: pb.Caller) -> bool:
        """Somebody writes in whose hands the file loses its privileges. Whether it has any."""
        self._handle.caller = caller
        return written(self.inode, caller) != self.inode.mode

    def start_sending(self) -> None:
        """Send what is held in the background; `errors` has what is lost."""
        self._wanted = True
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._send_rounds())

    async def _send_rounds(self) -> None:
        while self._wanted:  # also what came during a round: somebody may wait for its room
            self._wanted = False
            await self._send()

    async def send(self) -> None:
        """Send all that is held, and wait until it is durable. Raises what went wrong meanwhile.

        Who stops waiting does not stop it: what was taken to be sent is nowhere else.
        """
        before = self.errors.now
        await asyncio.shield(asyncio.ensure_future(self._send()))
        failure = self.errors.since(before)
        if failure is not None:
            raise failure

    async def _send(self) -> None:
        async with self._sending:
            await self._noting(self._send_extents)
            if self._tail:
                await self._noting(self._send_extents)  # what was written meanwhile, before it was appended
                await self._noting(self._send_tail)
            with contextlib.suppress(ThreefsError):  # nothing is lost: it is reported again
                await self._handle.sync_for_quota()

    async def _noting(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:  # of whatever kind: what was taken to be sent is nowhere else
            unforeseen = not isinstance(error, ThreefsError)
            _LOG.warning("what was written is lost", inode=self.inode.inode, error=str(error), exc_info=unforeseen)
            self.errors.record(error)
            self.lost(self.inode.inode)

    async def _send_extents(self) -> None:
        size = self._held.size
        extents = self._sent = self._held.take()
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
            self._sent = []
            self._room.give(size)
        self._handle.record_write(max(offset + len(data) for offset, data in extents), truncate_version=since)

    async def _send_tail(self) -> None:
        """The meta service says where it lies. It must know before what was written here and makes the file longer."""
        data, self._tail = self._tail, bytearray()
        self._placing, self._placed_before = len(data), self._placed_length
        handle = self._handle
        try:
            await handle.sync()
            await handle.append(memoryview(data))
        except BaseException as error:  # part of it may be there
            self._handle.record_write(outcome_unknown=not isinstance(error, Unavailable))
            raise
        finally:
            self._placing = self._placed_before = 0
            self._room.give(len(data))

    async def settle(self) -> None:
        """All is durable, and others see the length. Raises what went wrong meanwhile; what was lost before is in
        `errors`."""
        if self.unsettled:
            await self._settle(self._handle.sync)

    async def _settle(self, finish: Callable[[], Awaitable[None]]) -> None:
        failure: ThreefsError | None = None
        began_s = self._link.clock.monotonic()
        try:
            await self.send()
        except ThreefsError as error:  # the length of what did arrive is settled all the same
            failure = error
        dirty_ns = self._dirty_ns
        await finish()
        if self._dirty_ns == dirty_ns and not self.holding:
            self._dirty_ns = self._reach = 0
            self._handle.caller = None
        self._dirty_since_s = began_s  # what is left came later
        if failure is not None:
            raise failure

    # ---- changing ----

    async def truncate(
        self, length: int, caller: pb.Caller, *, through_handle: bool = False, moves: int | None = None
    ) -> pb.Inode:
        """An open handle stands for the permission to write. Else it is the file that had moved so often."""
        await self.send()
        request = pb.TruncateRequest(
            mutation=self._link.meta.mutation(),
            place=pb.Place(base=self.inode.inode, named=not through_handle, moves=moves),
            length=length,
            session=self.session if through_handle else b"",
        )
        async with self._sending:
            reply = await self._link.meta.call(
                methods.TRUNCATE, request, timeout_s=self._link.options.timeout_s, caller=caller
            )
            self._handle.file.written_end = self._reach = 0
            self.changed(reply.inode)
        return self.inode

    async def allocate(self, offset: int, length: int, mode: int) -> None:
        """What fallocate(2) does; the numbers of the modes are the same."""
        await self.send()
        async with self._sending:
            await fallocate.allocate(self._handle, offset, length, mode)

    async def seek_data(self, offset: int) -> int:
        await self.send()
        return await sparse.seek_data(self._handle, offset)

    async def seek_hole(self, offset: int) -> int:
        await self.send()
        return await sparse.seek_hole(self._handle, offset)

    async def copy_to(self, offset: int, destination: "OpenFile", at: int, length: int) -> int:
        """Up to `length` bytes, durable when it returns; how many."""
        await self.settle()
        await destination.settle()
        async with destination._sending:
            copied = await copy_range(self._handle, offset, destination._handle, at, length)
            destination._note_write()
        await destination.settle()
        return copied


def written(inode: pb.Inode, caller: pb.Caller) -> int:
    """What a write leaves of the mode: set-group-id means a privilege where the group may execute, and else a mark that
    members of the group may keep."""
    mode = inode.mode & ~0o4000
    if mode & 0o010 or (caller.uid and inode.gid != caller.gid and inode.gid not in caller.groups):
        mode &= ~0o2000
    return mode
