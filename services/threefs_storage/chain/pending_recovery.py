"""Pending versions that nobody drives are finished, wanted or not: those of before a start or a chain change, and those
whose change was given up."""

import asyncio
from collections.abc import Iterator

import structlog

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.ids import ChunkId
from threefs_storage.chain.craq import Craq
from threefs_storage.targets import Target

_TURN_S = 5.0
_PAUSE_S = 0.5
_AT_ONCE = 16  # a chain change leaves as many pending as were under way
_LOG = structlog.get_logger()


class PendingRecovery:
    """One task per target, begun anew with every chain version. Sets `target.finished` when nothing is left."""

    def __init__(self, craq: Craq, clock: Clock) -> None:
        self._craq = craq
        self._clock = clock
        self._background = BackgroundTasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def restart(self, target: Target) -> None:
        before = self._tasks.get(target.target_id)
        if before is not None:
            before.cancel()
        self._tasks[target.target_id] = self._background.run(
            f"finisher of target {target.target_id}", self._run(target)
        )

    async def _run(self, target: Target) -> None:
        while target.serving:
            target.recovery_requested.clear()
            chunks = iter(_unfinished(target))
            async with asyncio.TaskGroup() as group:  # cancelled, this ends only after all of them
                some = [group.create_task(self._finish_from(target, chunks)) for _ in range(_AT_ONCE)]
            if not all(task.result() for task in some):
                await self._clock.sleep(_PAUSE_S)
                continue
            target.pending_recovered.set()
            await target.recovery_requested.wait()

    async def _finish_from(self, target: Target, chunks: Iterator[ChunkId]) -> bool:
        """One after the other, beside others that take from the same chunks. Whether none is left."""
        done = True
        for chunk in chunks:
            try:
                await self._craq.finish_pending(target, chunk, self._clock.monotonic() + _TURN_S)
            except ThreefsError as error:
                done = False
                _LOG.info("a pending version cannot be finished now", chunk=chunk, error=str(error))
            except Exception:
                done = False
                _LOG.exception("a pending version cannot be finished", chunk=chunk)
        return done

    async def stop(self) -> None:
        await cancel_and_wait(*self._tasks.values())


def _unfinished(target: Target) -> list[ChunkId]:
    return [
        chunk for chunk in target.engine.pending() if chunk not in target.current_pending or chunk in target.abandoned
    ]
