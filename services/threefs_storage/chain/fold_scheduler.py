"""Folding overlays: small changes that were kept in the record store move into blocks when their chunk is at rest.

Reads of a block cost less than reads of many blobs, and the record store stays small. A fold changes no content, so
each target folds by itself. It holds the lock of the chunk: a write waits for the fold, a read does not.
"""

from collections.abc import Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, ThreefsError
from threefs.ids import ChunkId
from threefs_storage.chain.craq import Craq
from threefs_storage.scheduling.adjustable_pause import pause
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work
from threefs_storage.target import Target

#: Changed chunks of a target, beyond which the oldest ones are folded without waiting for rest.
MAX_FOLDABLE = 4096
_FOLD_S = 5.0
_LOG = structlog.get_logger()


class FoldScheduler:
    """One task per process. A chunk that has not changed for one to two intervals is folded."""

    def __init__(self, craq: Craq, interval_s: float, scheduler: BackgroundScheduler, *, clock: Clock) -> None:
        self._craq = craq
        self._scheduler = scheduler
        self.interval_s = interval_s
        self._clock = clock
        self._seen: dict[int, dict[ChunkId, int]] = {}  # by target: the versions of foldable chunks at the last visit
        self._background = BackgroundTasks()

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("overlay folder", self._run(targets))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, targets: Iterable[Target]) -> None:
        while True:
            await pause(self._clock, self._clock.monotonic(), lambda: self.interval_s)
            for target in list(targets):  # moves bring and take targets
                try:
                    await self.visit(target)
                except Exception:
                    _LOG.exception("overlays cannot be folded", target=target.target_id)

    async def visit(self, target: Target) -> None:
        """Fold the chunks that have not changed since the last visit, and the oldest of too many."""
        engine = target.engine
        if engine.failure is not None:
            return
        before, seen = self._seen.get(target.target_id, {}), {}
        excess = len(engine.foldable) - MAX_FOLDABLE
        for place, chunk in enumerate(list(engine.foldable)):
            if target.engine is not engine or engine.failure is not None or target.state is None:
                return  # one that has left its chain is closed when no chunk of it is locked
            version = _foldable_version(target, chunk)
            if version is None:
                continue
            if place < excess:  # too many wait: these do not yield to clients
                done = await self._fold(target, chunk)
            elif version == before.get(chunk):
                async with self._scheduler.turn(Work.FOLD, _stored_bytes(target, chunk)):
                    done = await self._fold(target, chunk)
            else:
                done = False
            if not done:
                seen[chunk] = version
        self._seen[target.target_id] = seen

    async def _fold(self, target: Target, chunk: ChunkId) -> bool:
        """False if it cannot be folded now: the next visit tries again, and the other chunks do not wait for it."""
        try:
            async with self._craq.locked_change(target, chunk, self._clock.monotonic() + _FOLD_S):
                assert chunk in target.locks, "a chunk is folded under its lock"
                await target.engine.fold(chunk)
        except (Corrupt, CorruptChunk):
            target.note_damage(chunk)
        except ThreefsError as error:
            _LOG.debug("an overlay cannot be folded now", target=target.target_id, chunk=chunk, error=str(error))
            return False
        return True


def _foldable_version(target: Target, chunk: ChunkId) -> int | None:
    """The committed version of a chunk that may be folded now."""
    if chunk in target.locks or chunk in target.damaged or chunk not in target.engine.foldable:
        return None
    try:
        record = target.engine.record(chunk)
    except Corrupt:
        target.note_damage(chunk)
        return None
    if record is None or record.committed is None or record.pending is not None:
        return None
    return record.committed.version


def _stored_bytes(target: Target, chunk: ChunkId) -> int:
    """About the bytes that a fold of the chunk moves. The record was read a moment ago."""
    record = target.engine.record(chunk)
    version = record.committed if record is not None else None
    return version.overlay.stored_bytes if version is not None and version.overlay is not None else 0
