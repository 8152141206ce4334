"""The bound on unsent bytes of all files of a mount."""

from collections.abc import Mapping
from typing import Protocol

from threefs.byte_budget import ByteBudget


class Sender(Protocol):
    """A file that may have unsent bytes."""

    def start_flush(self) -> None: ...


class WriteBudget:
    """The unsent bytes that all files together may have. When it is used up, all files start to send."""

    def __init__(self, limit_bytes: int, files: Mapping[int, Sender]) -> None:
        self._budget = ByteBudget(limit_bytes)
        self._files = files

    def try_take(self, size: int) -> bool:
        return self._budget.try_take(size)

    async def take(self, size: int) -> None:
        if not self._budget.try_take(size):
            for file in self._files.values():
                file.start_flush()
            await self._budget.take(size)

    def give(self, size: int) -> None:
        self._budget.give(size)
