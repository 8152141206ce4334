"""Finishing pending versions that no call is forwarding: those of an earlier process or chain version, and those whose
change was cancelled. An early version is not finished; it is dropped if its predecessor does not forward it."""

import asyncio
from collections.abc import Iterable, Iterator

import structlog

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.ids import ChunkId
from threefs.transfer_time import transfer_s
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.early_staging import EarlyStaging
from threefs_storage.target import Target

_TURN_S = 5.0  # and the time of the bytes that are sent
_PAUSE_S = 0.5
#: An early version that is so old is dropped. They are looked at as often, so it goes after twice that time at most.
EARLY_S = 5.0
_PARALLEL = 16  # a chain change leaves as many versions pending as were in flight
_LOG = structlog.get_logger()


class PendingRecovery:
    """One task per target, started again with every chain version. It sets `target.pending_recovered` when no such
    version is left."""

    def __init__(self, craq: Craq, early_staging: EarlyStaging, clock: Clock) -> None:
        self._craq = craq
        self._early_staging = early_staging
        self._clock = clock
        self._background = BackgroundTasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, targets: Iterable[Target]) -> None:
        self._background.start("drop of early versions", self._drop_early(targets))

    async def _drop_early(self, targets: Iterable[Target]) -> None:
        """Drop the early versions that were not forwarded: a tombstone, a fold or a check would wait for them (P10)."""
        while True:
            await self._clock.sleep(EARLY_S)
            since = self._clock.monotonic() - EARLY_S
            for target in list(targets):  # moves bring and take targets
                for chunk in target.early.older_than(since):
                    try:
                        await self._early_staging.drop(target, chunk, since, self._clock.monotonic() + _TURN_S)
                    except ThreefsError as error:
                        _LOG.info("an early version cannot be dropped now", chunk=chunk, error=str(error))

    def restart(self, target: Target) -> None:
        before = self._tasks.get(target.target_id)
        if before is not None:
            before.cancel()
        self._tasks[target.target_id] = self._background.run(
            f"pending recovery of target {target.target_id}", self._run(target)
        )

    async def end(self, target: Target) -> None:
        """The target was taken out of its chain for good."""
        if (task := self._tasks.pop(target.target_id, None)) is not None:
            await cancel_and_wait(task)

    async def _run(self, target: Target) -> None:
        while target.serving:
            target.recovery_requested.clear()
            chunks = iter(_unfinished(target))
            async with asyncio.TaskGroup() as group:  # when it is cancelled, this waits for all of them
                workers = [group.create_task(self._finish_from(target, chunks)) for _ in range(_PARALLEL)]
            if not all(task.result() for task in workers):
                await self._clock.sleep(_PAUSE_S)
                continue
            target.pending_recovered.set()
            await target.recovery_requested.wait()

    async def _finish_from(self, target: Target, chunks: Iterator[ChunkId]) -> bool:
        """Finish chunks one after the other; several workers share the iterator. False if one could not be finished."""
        complete = True
        for chunk in chunks:
            turn_s = _TURN_S + transfer_s(target.length_of(chunk), target.hops_behind)
            try:
                await self._craq.finish_pending(target, chunk, self._clock.monotonic() + turn_s)
            except ThreefsError as error:
                complete = False
                _LOG.info("a pending version cannot be finished now", chunk=chunk, error=str(error))
            except Exception:
                complete = False
                _LOG.exception("a pending version cannot be finished", chunk=chunk)
        return complete

    async def stop(self) -> None:
        await cancel_and_wait(*self._tasks.values())
        await self._background.stop()


def _unfinished(target: Target) -> list[ChunkId]:
    full = [chunk for chunk in target.engine.pending() if chunk not in target.early]
    return [chunk for chunk in full if chunk not in target.current_pending or chunk in target.abandoned]
