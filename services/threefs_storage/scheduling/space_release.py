"""Free blocks go back to the disk: their room is for other targets and other programs of the host.

A block that was given up is often needed again a moment later, by the next version of a chunk. So only blocks are
released that nobody has needed for an interval.
"""

from collections.abc import Iterable

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs_storage.target import Target

INTERVAL_S = 60.0
_LOG = structlog.get_logger()


class SpaceRelease:
    """One task per process."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._background = BackgroundTasks()

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("release of free blocks", self._run(targets))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, targets: Iterable[Target]) -> None:
        while True:
            await self._clock.sleep(INTERVAL_S)
            for target in list(targets):  # moves bring and take targets
                try:
                    await target.engine.release_unneeded()
                except ThreefsError as error:
                    _LOG.info("free blocks cannot be released now", target=target.target_id, error=str(error))
                except Exception:
                    _LOG.exception("free blocks cannot be released", target=target.target_id)
