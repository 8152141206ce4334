"""Sends batches of writes in the background, one at a time."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any

from threefs_client import FileSystem

from threefs.env import loop_thread

Row = tuple[Any, int, memoryview]


class BatchSender:
    """The memory of a batch must not change until the next `send` returns. The end of the `with` block waits until
    everything is durable. An error of a batch is raised by the next call, and ends the block."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._task: asyncio.Task[int] | None = None

    def send(self, rows: Sequence[Row]) -> None:
        """Begin to send a batch, when the one before it is durable."""
        loop_thread.run(self._send(rows))

    async def _send(self, rows: Sequence[Row]) -> None:
        core = await self._fs.connected()
        await self._settle()
        self._task = asyncio.ensure_future(core.write_batch(rows))

    async def _settle(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _abandon(self) -> None:
        """After this nothing reads the memory of the caller."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def __enter__(self) -> "BatchSender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work: Coroutine[Any, Any, None] = self._settle() if error is None else self._abandon()
        loop_thread.run(work)
