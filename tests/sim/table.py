"""The record table of a target on a simulated disk: ordered, durable up to the last flush or a little more."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from pathlib import Path

from tests.sim.dice import SeededRandom
from tests.sim.disk import SimDisk
from threefs.errors import DiskFailed, ThreefsError, Unavailable
from threefs.kv.port import Pair


class Rows:
    """What outlives processes."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.undo: list[dict[bytes, bytes | None]] = []  # of the writes that are not durable yet, oldest first
        self.owner: object = None  # the one opening that may write

    def apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                if self.values.pop(key, None) is not None:
                    del self.keys[bisect_left(self.keys, key)]
            else:
                if key not in self.values:
                    insort(self.keys, key)
                self.values[key] = value

    def forget_unsynced(self, random: SeededRandom) -> None:
        """The log is cut somewhere behind the last flush."""
        for _ in range(random.below(len(self.undo) + 1)):
            self.apply(self.undo.pop())
        self.undo.clear()


class SimTable:
    """threefs_storage.engine.store.RecordTable: one opening by one process."""

    def __init__(self, disk: SimDisk, rows: Rows) -> None:
        self.written = 0
        self.durable = 0
        self.failure: ThreefsError | None = None
        self._disk = disk
        self._rows = rows
        rows.owner = self
        rows.undo.clear()  # recovery has read the log and made it durable

    def get(self, key: bytes) -> bytes | None:
        return self._rows.values.get(key)

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        keys, values = self._rows.keys, self._rows.values
        first, last = bisect_left(keys, begin), bisect_left(keys, end)
        if limit:
            first, last = (max(first, last - limit), last) if reverse else (first, min(last, first + limit))
        found = [(key, values[key]) for key in keys[first:last]]
        return found[::-1] if reverse else found

    def write(self, changes: Mapping[bytes, bytes | None]) -> int:
        assert self._rows.owner is self, "two processes write to one table"
        if self.failure is not None:
            raise type(self.failure)(self.failure.message)
        self._rows.undo.append({key: self._rows.values.get(key) for key in changes})
        self._rows.apply(changes)
        self.written += 1
        return self.written

    async def flush(self, number: int | None = None) -> None:
        if (self.written if number is None else number) <= self.durable:
            return
        reached = self.written

        def durable() -> None:
            if reached > self.durable and self._rows.owner is self:
                del self._rows.undo[: reached - self.durable]
                self.durable = reached

        try:
            await self._disk.do(durable, kind="sync")
        except DiskFailed as error:
            self.failure = Unavailable(str(error))
            raise self.failure from None

    async def reopen(self) -> None:
        """It has room of its own."""

    async def close(self) -> None:
        if self.failure is None:
            await self.flush()


async def open_table(disk: SimDisk, path: Path) -> SimTable:
    await disk.wait()
    rows = disk.tables.setdefault(path, Rows())
    return SimTable(disk, rows)
