"""Collecting tombstones: the records of removed chunks, when nothing needs their versions any more.

A tombstone is needed while a write from before the removal may still arrive, and while an absent member of the chain
may return with the chunk. The head visits a page of records at a time in key order, and starts again at the end.
"""

from collections.abc import Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.ids import ChunkId
from threefs_storage.chain.craq import Craq
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.exactly_once import WRITE_LIFETIME_MINUTES
from threefs_storage.target import Target

_INTERVAL_S = 5.0
_PAGE = 1024  # records of each target that are visited in an interval
_COLLECT_S = 5.0  # for one, and for all of a page that are refused

_LOG = structlog.get_logger()


class TombstoneCollector:
    """One task per process."""

    def __init__(self, craq: Craq, *, clock: Clock) -> None:
        self._craq = craq
        self._clock = clock
        self._cursors: dict[int, ChunkId | None] = {}  # by target: the last chunk that was visited
        self._background = BackgroundTasks()

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("tombstone collector", self._run(targets))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, targets: Iterable[Target]) -> None:
        while True:
            await self._clock.sleep(_INTERVAL_S)
            for target in list(targets):  # moves bring and take targets
                try:
                    if target.engine.failure is None:
                        target.save_logical_time()
                    await self.collect_page(target)
                except ThreefsError as error:
                    _LOG.debug("tombstones cannot be collected now", target=target.target_id, error=str(error))
                except Exception:
                    _LOG.exception("tombstones cannot be collected", target=target.target_id)

    async def collect_page(self, target: Target) -> int:
        """Visit a page of records, and return how many were collected. One that is refused holds up no other one, until
        refusals have taken so much time that the successor is away. Raises what the last refused one failed with."""
        if not target.is_head or not target.all_members_serve or target.logical_time.now <= WRITE_LIFETIME_MINUTES:
            return 0
        page = target.inventory(self._cursors.get(target.target_id), _PAGE)
        self._cursors[target.target_id] = page[-1][0] if len(page) == _PAGE else None
        collected, left_s = 0, _COLLECT_S
        refusal: ThreefsError | None = None
        for chunk, record in page:
            if record is None or not _is_tombstone(record) or chunk in target.locks:
                continue
            assert record.committed is not None, "a tombstone is a committed version"
            began = self._clock.monotonic()
            try:
                collected += await self._craq.collect_tombstone(
                    target, chunk, record.committed.version, began + _COLLECT_S
                )
            except ThreefsError as error:
                refusal = error
                left_s -= self._clock.monotonic() - began
                if left_s <= 0:
                    self._cursors[target.target_id] = chunk  # one that never answers holds up none behind it
                    break
        if refusal is not None:
            raise refusal
        return collected


def _is_tombstone(record: Record) -> bool:
    return record.committed is not None and record.committed.removed and record.pending is None
