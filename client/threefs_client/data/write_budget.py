"""The bound on the unsent bytes of all files of one connection or mount."""

from typing import Protocol

from threefs.byte_budget import ByteBudget


class Sender(Protocol):
    """A file that may have unsent bytes."""

    def start_flush(self) -> None: ...


class WriteBudget:
    """The unsent bytes that all files together may have. When it is used up, all files start to send."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._budget = ByteBudget(limit_bytes)
        self._dirty: dict[Sender, None] = {}  # files with unsent bytes, the oldest first

    def set_limit(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._budget.set_limit(limit_bytes)

    def add_dirty(self, file: Sender) -> None:
        """The file has unsent bytes from now on."""
        self._dirty[file] = None

    def remove_dirty(self, file: Sender) -> None:
        """All bytes of the file are sent or given up."""
        self._dirty.pop(file, None)

    @property
    def used_bytes(self) -> int:
        return self._budget.used_bytes

    @property
    def is_short(self) -> bool:
        """Somebody waits. Whoever was let in sends at once: the files that were asked to send did not have its bytes
        yet, and nobody may ask again."""
        return self._budget.is_short

    def try_take(self, size: int) -> bool:
        return self._budget.try_take(size)

    async def take(self, size: int) -> None:
        if not self._budget.try_take(size):
            for file in list(self._dirty):
                file.start_flush()
            await self._budget.take(size)

    def give(self, size: int) -> None:
        self._budget.give(size)
