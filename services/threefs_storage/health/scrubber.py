"""Reads everything slowly, so that damage is found while other replicas still have what it has destroyed, and compares
what is committed with the neighbours in the chain. A new process goes on where the last one stopped."""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, ThreefsError, Unavailable
from threefs.ids import ChunkId
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.records import Record
from threefs_storage.health.comparison import Comparison
from threefs_storage.target import Target

_PAGE = 256
_LEAST_BYTES = 4096  # what a chunk costs at least, by the pace
_CURSOR = "scrub"  # the name under which the store remembers the last chunk that was looked at
_SHOWN = 8
_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ScrubRate:
    bytes_per_s: int = 32 << 20
    interval_s: float = 7 * 86_400.0  # from the beginning of one pass to that of the next, at least


class Scrubber:
    """One task per process: one disk is read at one pace, however many targets lie on it."""

    def __init__(self, pace: ScrubRate, comparison: Comparison, *, clock: Clock) -> None:
        self.passes = 0
        self._rate = pace
        self._comparison = comparison
        self._clock = clock
        self._background = BackgroundTasks()

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("scrubber", self._run(list(targets)))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, targets: list[Target]) -> None:
        while True:
            began = self._clock.monotonic()
            for target in targets:
                try:
                    await self._scrub(target)
                except ThreefsError as error:
                    _LOG.info("a target cannot be scrubbed now", target=target.target_id, error=str(error))
                except Exception:
                    _LOG.exception("a target cannot be scrubbed", target=target.target_id)
            self.passes += 1
            await self._clock.sleep(max(1.0, began + self._rate.interval_s - self._clock.monotonic()))

    async def _scrub(self, target: Target) -> None:
        """From where the last process stopped, to the end."""
        engine = target.engine
        cursor = engine.note(_CURSOR)
        after = ChunkId.of_key(cursor) if cursor else None
        while page := target.inventory(after, _PAGE):
            for chunk, _ in page:
                length = await self._verify(target, engine, chunk)
                target.scrubbed_chunks += 1
                target.scrubbed_bytes += length
                await self._clock.sleep(max(length, _LEAST_BYTES) / self._rate.bytes_per_s)
                if target.engine is not engine:
                    raise Unavailable("its store has been opened anew")
            last = page[-1][0]
            await self._compare(target, after, last if len(page) == _PAGE else None)
            after = last
            engine.put_note(_CURSOR, after.key())
        engine.put_note(_CURSOR, None)
        target.scrub_passes += 1

    async def _compare(self, target: Target, after: ChunkId | None, last: ChunkId | None) -> None:
        wrong = await self._comparison.find_divergent(target, after, last)
        if wrong and len(target.chain.serving) > 1 and not target.has_failed:
            _LOG.error(
                "a target has not what others have: it leaves, and comes back by resync",
                target=target.target_id,
                chunks=wrong[:_SHOWN],
                count=len(wrong),
            )
            target.engine.fail(Corrupt(f"{len(wrong)} chunks are not what the chain has, the first is {wrong[0]}"))

    async def _verify(self, target: Target, engine: ChunkEngine, chunk: ChunkId) -> int:
        """Bytes read. A record that cannot be decoded is damage, and so are bytes that fail their checksum."""
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
        """As it lies on the disk, not as it is remembered."""
        found = engine.stored_record(chunk)
        if found is None and target.note_damage(chunk):
            _LOG.warning("a damaged record was found", target=target.target_id, chunk=chunk)
        return found or None
