"""The scrubber reads everything slowly, so that damage is found while other replicas still have good copies, and
compares committed versions with the neighbours in the chain. After a restart it continues where it stopped."""

import asyncio
import math
from collections.abc import Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, ThreefsError, Unavailable
from threefs.ids import ChunkId
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.scheduling.adjustable_pause import pause
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work
from threefs_storage.target import Target

_PAGE = 256
_MIN_BYTES = 4096  # every chunk counts as at least this many bytes
_CURSOR = "scrub"  # the note in the store that names the last chunk that was read
_COUNT = "scrub_chunks"  # the note that says how many chunks of the pass lie before the cursor
_LEAST_PAUSE_S = 1.0  # between two passes
_LOG = structlog.get_logger()


class Scrubber:
    """One task per process: the rate is that of the disk, however many targets are on it."""

    def __init__(
        self, interval_s: float, comparison: Comparison, scheduler: BackgroundScheduler, *, clock: Clock
    ) -> None:
        """A pass begins at least `interval_s` after the one before it."""
        self.passes = 0
        self._interval_s = interval_s
        self._scheduler = scheduler
        self._comparison = comparison
        self._clock = clock
        self._background = BackgroundTasks()
        self._waits: asyncio.Timeout | None = None  # for the next pass

    def set_interval(self, interval_s: float, targets: Iterable[Target]) -> None:
        """Also of the pass that is under way."""
        self._interval_s = interval_s
        for target in targets:
            target.scrub_interval_s = interval_s

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("scrubber", self._run(targets))

    async def stop(self) -> None:
        await self._background.stop()

    def start_pass(self) -> bool:
        """Begin a pass at once. False: one is under way, and goes on."""
        if self._waits is None or self._waits.expired():
            return False
        self._waits.reschedule(-math.inf)
        return True

    async def _run(self, targets: Iterable[Target]) -> None:
        while True:
            began = self._clock.monotonic()
            for target in targets:
                target.scrub_interval_s = self._interval_s
            for target in list(targets):  # moves bring and take targets
                try:
                    target.scrubbing = True
                    await self._scrub(target)
                except ThreefsError as error:
                    _LOG.info("a target cannot be scrubbed now", target=target.target_id, error=str(error))
                except Exception:
                    _LOG.exception("a target cannot be scrubbed", target=target.target_id)
                finally:
                    target.scrubbing, target.pass_chunks = False, 0
            self.passes += 1
            await self._wait(began)

    async def _wait(self, began: float) -> None:
        """For the next pass, after one that began at that time."""
        took_s = self._clock.monotonic() - began
        try:
            async with asyncio.timeout(None) as self._waits:
                await pause(self._clock, began, lambda: max(took_s + _LEAST_PAUSE_S, self._interval_s))
        except TimeoutError:
            pass  # somebody wants a pass now
        finally:
            self._waits = None

    async def _scrub(self, target: Target) -> None:
        """One pass, from the stored cursor to the end."""
        engine = target.engine
        cursor = engine.note(_CURSOR)
        after = ChunkId.of_key(cursor) if cursor else None
        target.pass_chunks = int.from_bytes(engine.note(_COUNT) or b"", "big") if cursor else 0
        while True:
            page = target.inventory(after, _PAGE)
            assert after is None or not page or page[0][0] > after, "a page begins behind the one before"
            for chunk, _ in page:
                async with self._scheduler.turn(Work.SCRUB, max(_length(engine, chunk), _MIN_BYTES)):
                    length = await self._verify(target, engine, chunk)
                target.scrubbed_chunks += 1
                target.pass_chunks += 1
                target.scrubbed_bytes += length
                if target.engine is not engine:
                    raise Unavailable("the store was opened again: the pass starts again")
            assert len(page) <= _PAGE, "a page has at most the chunks that were asked for"
            last = page[-1][0] if len(page) == _PAGE else None
            if page or after is not None or self.passes:  # else the process has just started, perhaps with a new store
                await self._comparison.check(target, after, last)
            if last is None:  # also what this target lacks behind its last chunk was compared
                break
            assert after is None or last > after, "the cursor only moves on"
            after = last
            engine.put_note(_CURSOR, after.key())
            engine.put_note(_COUNT, target.pass_chunks.to_bytes(8, "big"))
        engine.put_note(_CURSOR, None)
        target.note_scrub_pass()

    async def _verify(self, target: Target, engine: ChunkEngine, chunk: ChunkId) -> int:
        """Read a chunk from the disk and note damage of its record or bytes. Returns the bytes read."""
        record = self._stored_record(target, engine, chunk)
        if record is None or record.committed is None:
            return 0
        engine.pin(record.committed)
        try:
            await engine.verify(record.committed)
        except (CorruptChunk, DiskFailed) as error:
            if target.engine is engine and target.note_damage(chunk):
                _LOG.warning("damage found", target=target.target_id, chunk=chunk, error=str(error))
        finally:
            engine.unpin(record.committed)
        return record.committed.length

    def _stored_record(self, target: Target, engine: ChunkEngine, chunk: ChunkId) -> Record | None:
        """The record on the disk, past the cache."""
        found = engine.stored_record(chunk)
        if found is None and target.note_damage(chunk):
            _LOG.warning("a damaged record was found", target=target.target_id, chunk=chunk)
        return found or None


def _length(engine: ChunkEngine, chunk: ChunkId) -> int:
    """About the bytes that the chunk has: it may change until it is read."""
    try:
        record = engine.record(chunk)
    except Corrupt:
        return 0
    return record.committed.length if record is not None and record.committed is not None else 0
