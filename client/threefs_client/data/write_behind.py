"""Write-behind: the written bytes of one file are kept, and sent in the background. File objects and mounts share it.

One flush runs at a time. It sends all extents that it has drained, and waits for them; meanwhile later writes gather.
So writes of the same bytes arrive in their order, and a writer never waits while there is room. The memory is bounded:
`max_unsent_bytes` in `MAX_PIECES` pieces gather while at most as many are in flight, and all files share a
`WriteBudget`.

A flush that nobody waits for leaves out the chunks that are just being filled, because each replica would write such a
chunk twice: one chunk if a single program writes in sequence, some more if several programs write parts of a file in
turns. Somebody who waits (`flush`) wants everything to be sent.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

from threefs.env.shielded_wait import shielded
from threefs.errors import DeadlineExceeded, LockLost, OutcomeUnknown, SessionLost, ThreefsError, Unavailable
from threefs.telemetry.library_logging import LibraryLogger
from threefs_client.data.dirty_extents import DirtyExtents, Extent, clip
from threefs_client.data.errseq import Errseq
from threefs_client.data.handles import Handle
from threefs_client.data.write_budget import WriteBudget

#: With this many unsent bytes that need not wait for more, a flush starts in the background, ...
FLUSH_BYTES = 4 << 20
#: ... or with this many pieces, because each costs memory besides its bytes.
FLUSH_PIECES = 4096
#: With this many unsent pieces a write waits.
MAX_PIECES = 2 * FLUSH_PIECES
#: So many pieces of one chunk are sent under one deadline: pieces that lie far from each other are written one after
#: the other, and with more of them a healthy chain could need longer than a deadline.
_PART_PIECES = 512
#: Errors of a chain that was tried until the deadline.
_AT_DEADLINE = (DeadlineExceeded, OutcomeUnknown, Unavailable)
#: With this many unsent bytes a write waits.
MAX_UNSENT_BYTES = 8 * FLUSH_BYTES
#: This part of them may be in chunks that are being filled, ...
_FILLING_SHARE = 0.25
#: ... or all but so many: programs that write in turns drift apart by many MiB, because the kernel lets them.
_FILLED_BYTES = 2 * FLUSH_BYTES

_LOG = LibraryLogger(__name__)


async def _nothing() -> None:
    pass


class WriteBehind:
    def __init__(
        self,
        handle: Handle,
        budget: WriteBudget,
        *,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        keeps_failed: bool = False,
        before_extents: Callable[[], Awaitable[None]] = _nothing,
        after_extents: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        """With `keeps_failed`, bytes that could not be sent are kept for the next flush; else they are lost.
        `before_extents` is called before extents are sent, which fail with what it raises. `after_extents` is what a
        flush does when it has sent them."""
        self.handle = handle  # the owner may replace it
        self.errors = Errseq()
        self.lock = asyncio.Lock()  # held by a flush, and by what must not meet one: a truncate, an allocation, a copy
        self.on_lost: Callable[[], None] = lambda: None  # is called when written bytes were lost
        self.max_unsent_bytes = max_unsent_bytes
        self._budget = budget
        self._taken = 0  # bytes of the budget
        self._keeps_failed = keeps_failed
        self._before_extents = before_extents
        self._after_extents = after_extents
        filling_bytes = max(round(max_unsent_bytes * _FILLING_SHARE), max_unsent_bytes - _FILLED_BYTES)
        self._extents = DirtyExtents(handle.layout.chunk_bytes, filling_bytes)
        self._in_flight: list[Extent] = []
        self._in_flight_bytes = self._in_flight_end = 0
        self._task: asyncio.Task[None] | None = None
        self._flush_again = self._flush_all_again = False  # the task must do one more flush
        self._waiting: list[asyncio.Future[None]] = []  # writes that wait for room
        self.losses = 0  # how often unsent bytes were discarded

    # ---- state ----

    @property
    def unsent_bytes(self) -> int:
        return self._extents.size

    @property
    def held_bytes(self) -> int:
        """Bytes that are not sent yet, or in flight."""
        return self._extents.size + self._in_flight_bytes

    @property
    def end(self) -> int:
        """The file offset behind the last of these bytes; 0 if there are none. In any thread: bytes that the loop moves
        to and fro meanwhile are seen at one of the two places."""
        return max(self._in_flight_end, self._extents.end, self._in_flight_end)

    @property
    def is_idle(self) -> bool:
        """Nothing is held, and nothing is being sent."""
        return not self.held_bytes and not self.lock.locked()

    @property
    def is_sending(self) -> bool:
        """Extents are in flight."""
        return bool(self._in_flight)

    @property
    def flush_has_begun(self) -> bool:
        """A background flush was started at some time."""
        return self._task is not None

    def extents_of(self, offset: int, length: int) -> list[Extent]:
        """The bytes of a range that are in flight or not sent yet, in the order of the writes. Later writes do not
        change them."""
        return [*clip(self._in_flight, offset, length), *self._extents.copies_of(offset, length)]

    # ---- writing ----

    def has_room(self, size: int) -> bool:
        """Whether the file may hold so many bytes more."""
        held = self.held_bytes
        return not held or (
            self._extents.size + size <= self.max_unsent_bytes
            and held + size <= 2 * self.max_unsent_bytes
            and self._extents.pieces < MAX_PIECES
        )

    def try_add(self, offset: int, data: bytes | bytearray | memoryview) -> bool:
        """Keep the bytes, if there is room. A bytearray is taken over, a memoryview is copied. If there is no memory
        for that (MemoryError), the caller keeps them; some of them may be here as well."""
        if not self.has_room(len(data)) or not self.try_take_budget(len(data)):
            return False
        self._add(offset, data)
        return True

    async def add(self, offset: int, data: bytes | bytearray | memoryview, losses: int | None = None) -> None:
        """Wait for room, and keep the bytes. If it is cancelled or raises, they are not kept, but after a MemoryError
        some of them may be, as with `try_add`.

        Raises the error of a flush that has failed meanwhile, and LockLost if unsent bytes were discarded since
        `losses` was read: these may have been written under the same lock.
        """
        losses = self.losses if losses is None else losses
        await self._wait_for_room(len(data))
        await self.take_budget(len(data), losses)
        self._add(offset, data)

    def _add(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        before = self._extents.size
        try:
            self._extents.add(offset, data)
        finally:
            if left := len(data) - (self._extents.size - before):  # others were overwritten, or there is no memory
                self.give_budget(left)
        with contextlib.suppress(MemoryError):  # the bytes are here: the next ones start it, or a flush
            if self._extents.pieces >= FLUSH_PIECES:
                self.start_flush()
            elif self._extents.ready_bytes >= min(FLUSH_BYTES, self.max_unsent_bytes):
                self._start(everything=False)

    async def _wait_for_room(self, size: int) -> None:
        before = self.errors.current
        while not self.has_room(size):
            self._start(everything=not self._extents.ready_bytes or self._extents.pieces >= FLUSH_PIECES)
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room
            failure = self.errors.check(before)
            if failure is not None:
                raise failure

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    def discard(self, error: Exception, appended: int = 0) -> None:
        """Drop the unsent bytes, and `appended` ones that the owner has just dropped. Bytes in flight go on."""
        self.losses += 1
        if self._extents.size + appended:
            self._drop_unsent()
            self.give_budget(appended)
            self._wake()
            self.lost(error)

    async def close(self) -> None:
        """Drop the unsent bytes, which nobody will send any more, and wait until nothing is in flight."""
        self._drop_unsent()
        self._keeps_failed = False
        async with self.lock:
            pass

    def _drop_unsent(self) -> None:
        size = self._extents.size
        self._extents.clear()
        self.give_budget(size)

    def lost(self, error: Exception) -> None:
        """Record that written bytes were lost."""
        if isinstance(error, SessionLost):  # ESTALE is for names that have changed
            error = LockLost(f"bytes that were written before the lease of this process expired are lost: {error}")
        unforeseen = None if isinstance(error, ThreefsError) else error
        _LOG.warning("written bytes were lost", inode=self.handle.inode, error=str(error), exc_info=unforeseen)
        self.errors.record(error)
        self.on_lost()

    # ---- the budget of all files ----

    def try_take_budget(self, size: int) -> bool:
        """For bytes that the owner keeps."""
        if not self._budget.try_take(size):
            return False
        self._took(size)
        return True

    async def take_budget(self, size: int, losses: int) -> None:
        """The same, but wait. Raises LockLost if unsent bytes were discarded since `losses` was read."""
        await self._budget.take(size)
        if self.losses != losses:
            self._budget.give(size)
            raise LockLost()
        self._took(size)

    def _took(self, size: int) -> None:
        if not self._taken:
            self._budget.add_dirty(self)
        self._taken += size
        if self._budget.is_short:
            with contextlib.suppress(MemoryError):  # as where the bytes are added
                self.start_flush()

    def give_budget(self, size: int) -> None:
        """The bytes are sent, or dropped."""
        self._taken -= size
        assert self._taken >= 0, "more bytes were given back to the budget than were taken"
        if not self._taken:
            self._budget.remove_dirty(self)
        self._budget.give(size)

    # ---- sending ----

    def start_flush(self) -> None:
        """Send the unsent bytes in the background. `errors` records what fails."""
        self._start(everything=True)

    def _start(self, *, everything: bool) -> None:
        self._flush_again = True
        self._flush_all_again = self._flush_all_again or everything
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_repeatedly())

    async def _flush_repeatedly(self) -> None:
        while self._flush_again:  # also writes that came during a flush: a program may wait for their room
            everything, self._flush_again, self._flush_all_again = self._flush_all_again, False, False
            await self._flush(everything)

    async def flush(self) -> None:
        """Send the unsent bytes, and wait until they are durable. Raises an error if any of them is not.

        Cancelling the call does not stop the flush, because the bytes in flight are nowhere else.
        """
        before = self.errors.current
        failure = await shielded(asyncio.ensure_future(self._flush(True)))
        if not self._keeps_failed:  # those of a flush that was waited for are lost as well; kept ones were sent again
            failure = self.errors.check(before)
        if failure is not None:
            raise failure

    async def _flush(self, everything: bool) -> Exception | None:
        """Returns the error of the extents."""
        async with self.lock:
            failure = await self.send_extents(everything=everything)
            await self._after_extents()
            with contextlib.suppress(ThreefsError):  # the length is reported again later
                await self.handle.sync_for_quota()
            return failure

    async def send_extents(self, *, everything: bool = True) -> Exception | None:
        """Send the extents, and wait until they are durable. Returns the error, which `errors` has recorded. The caller
        holds the lock."""
        self._in_flight_end = self._extents.end  # before they are drained, as other threads ask for the end
        try:
            extents = self._extents.drain() if everything else self._extents.drain_ready()
        except MemoryError as error:
            self._not_drained(error)
            return error
        if not extents:
            self._in_flight_end = 0
            return None
        self._in_flight, self._in_flight_bytes = extents, sum(len(data) for _, data in extents)
        self._in_flight_end = max(offset + len(data) for offset, data in extents)
        self._wake()
        try:
            return await self._send(extents)
        finally:
            size, self._in_flight, self._in_flight_bytes, self._in_flight_end = self._in_flight_bytes, [], 0, 0
            self.give_budget(size)
            self._wake()

    async def _send(self, extents: list[Extent]) -> Exception | None:
        """Send extents in parts, each with a deadline of its own. Returns the first error.

        After an error that took a whole deadline the rest is one part: chains that work get their bytes, and an `fsync`
        does not wait for one deadline after the other if none works.
        """
        losses = self.losses
        failure: Exception | None = None
        failed: list[Extent] = []
        parts = self._parts(extents)
        while parts:
            part = parts.pop(0)
            try:
                await self._before_extents()
                if self.losses != losses:
                    raise LockLost("bytes that were written under a lock that was lost are not sent")
                await self._send_part(part)
            except Exception as error:  # of any kind: the bytes that it has drained are nowhere else
                failure = failure or error
                failed += part
                if parts and isinstance(error, _AT_DEADLINE):
                    parts = [[extent for part in parts for extent in part]]
        if failure is not None:
            self._failed(failed, failure)
        return failure

    def _parts(self, extents: list[Extent]) -> list[list[Extent]]:
        """Parts that have at most `_PART_PIECES` of each chunk, so all chunks are written at the same time."""
        chunk_bytes, counts = self.handle.layout.chunk_bytes, Counter[int]()
        parts: list[list[Extent]] = []
        for extent in extents:
            chunk = extent[0] // chunk_bytes
            number = counts[chunk] // _PART_PIECES
            counts[chunk] += 1
            if number == len(parts):
                parts.append([])
            parts[number].append(extent)
        return parts

    async def _send_part(self, extents: list[Extent]) -> None:
        handle = self.handle  # a later handle of the file has another fence
        since = handle.file.truncate_version
        try:
            await handle.apply(lambda: [update for offset, data in extents for update in handle.updates(offset, data)])
        except BaseException:  # part of it may be there, whatever the error of one chunk is
            self.handle.record_write(outcome_unknown=True)
            raise
        self.handle.record_write(max(offset + len(data) for offset, data in extents), truncate_version=since)

    def _not_drained(self, error: MemoryError) -> None:
        """There is no memory for what is to be sent: all of it is still among the unsent bytes."""
        self._in_flight_end = 0
        if self._keeps_failed:
            self.errors.record(error)
        else:
            self._drop_unsent()
            self.lost(error)
        self._wake()

    def _failed(self, extents: list[Extent], error: Exception) -> None:
        if not self._keeps_failed:
            self.lost(error)
            return
        self.errors.record(error)
        overwritten = self._extents.put_back(extents)
        self._in_flight_bytes -= sum(len(data) for _, data in extents) - overwritten  # kept ones stay in the budget
