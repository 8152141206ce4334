"""Stores whose table is damaged, and the empty ones that take their places.

See `quarantine.py`. The empty one has to fit on the disk beside the one in quarantine, which gives way where it does
not.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from threefs.env.disk import Disk
from threefs.errors import Corrupt, ThreefsError
from threefs.ids import TargetId
from threefs.routing import Chain
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.health.quarantine import has_other_copy, is_quarantined, mark_replacement, place_of, quarantine

_LOG = structlog.get_logger()


class DamagedStores:
    """Of the targets of this process."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        #: Those whose store is one that has replaced a damaged one, as far as this process knows.
        self.replaced: set[TargetId] = set()
        self._directory = directory
        self._disk = disk
        #: By target: one store is removed by one task, and none comes there meanwhile.
        self._locks = defaultdict[TargetId, asyncio.Lock](asyncio.Lock)

    async def open_or_replace(
        self,
        target_id: TargetId,
        chain: Chain,
        open_engine: Callable[[Path], Awaitable[ChunkEngine]],
        is_out_of_service: Callable[[], bool],
    ) -> ChunkEngine:
        """Open a store. One whose table is damaged is quarantined and replaced by an empty one, which is marked, if
        another member may have all that it should have, unless its target is out of service: on a disk that awaits its
        replacement, an empty store would pass for the new disk."""
        directory = self._directory_of(target_id)
        if is_quarantined(directory, await self._disk.list_directory(self._directory)):
            self.replaced.add(target_id)
        engine = None
        try:
            engine = await open_engine(directory)
        except Corrupt as error:
            if not has_other_copy(chain, target_id):
                raise
            async with self._locks[target_id]:
                place = await quarantine(directory, self._disk, is_out_of_service)
            if place is None:
                raise
            self.replaced.add(target_id)
            _LOG.error("a damaged store is quarantined", target=target_id, directory=str(place), error=error.message)
        if engine is None:
            engine = await open_engine(directory)  # only here: the error holds the table, and so its lock
        if target_id in self.replaced:
            mark_replacement(engine)
        return engine

    def is_dropping(self, target_id: TargetId) -> bool:
        """Whether its quarantined store is being deleted."""
        return target_id in self._locks and self._locks[target_id].locked()

    async def drop(self, target_id: TargetId, is_needed: Callable[[], bool]) -> bool:
        """Delete its quarantined store. Returns whether there was one, and it is deleted. Raises what the disk fails
        with when it is looked at."""
        directory = self._directory_of(target_id)
        place = place_of(directory)
        async with self._locks[target_id]:
            is_there = is_quarantined(directory, await self._disk.list_directory(self._directory))
            # Both are so now; it may have been otherwise before this one had its turn.
            if not is_there or is_needed():
                return False
            try:
                await self._disk.remove_directory(place)
            except ThreefsError as error:  # there may be room by other means
                _LOG.info("a quarantined store cannot be deleted", directory=str(place), error=str(error))
                return False
            self.replaced.add(target_id)
            _LOG.warning("a quarantined store is deleted, because the disk is full", directory=str(place))
            return True

    def _directory_of(self, target_id: TargetId) -> Path:
        return self._directory / f"target-{target_id}"
