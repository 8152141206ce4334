"""The record table of a target on a simulated disk: ordered, durable up to the last flush or a little more.

It fails as threefs.kv.table does: after an error of the disk it refuses everything, after a full disk all writes. That
the disk is full may be found out only by the flush, when what was written can be read.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.record_rows import Rows
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError, Unavailable
from threefs.kv.engine_api import Pair

_ROOM_TO_OPEN_BYTES = 64 << 10
_LOST = 0.1  # of the tables that a flush has found no room for


class SimTable:
    """threefs_storage.engine.record_store.RecordTable: one opening by one process."""

    def __init__(self, disk: SimDisk, rows: Rows) -> None:
        self.written = 0
        self.durable = 0
        self.failure: ThreefsError | None = None
        self._lacking_bytes = 0  # of a write that the next flush finds no room for
        self._disk = disk
        self._rows = rows
        rows.owner = self
        rows.undo.clear()  # recovery has read the log and made it durable
        self.durable_change = rows.changes

    @property
    def change(self) -> int:
        return self._rows.changes

    def get(self, key: bytes) -> bytes | None:
        self._check_readable()
        return self._rows.values.get(key)

    def scan(self, begin: bytes, end: bytes, limit: int = 0, reverse: bool = False) -> list[Pair]:
        self._check_readable()
        return self._rows.scan(begin, end, limit, reverse)

    def write(self, changes: Mapping[bytes, bytes | None]) -> int:
        assert self._rows.owner is self, "two processes write to one table"
        self._check(self.failure)
        if self._disk.fails("write"):
            self._check(self._fail(Unavailable("the disk of the table failed (write)")))
        needed = sum(len(key) + len(value or b"") for key, value in changes.items())
        if needed > self._disk.room_bytes():
            if self._lacking_bytes or not self._disk.random.chance(self._disk.full_found_late):
                self._check(self._fail(NoSpace("the disk of the table is full")))
            self._lacking_bytes = needed
        self._rows.write(changes)
        self.written += 1
        return self.written

    async def flush(self, number: int | None = None) -> None:
        if (self.written if number is None else number) <= self.durable:
            return
        self._check(self.failure)
        if self._lacking_bytes > self._disk.room_bytes():
            raise self._fail(NoSpace("the disk of the table is full, and the log cannot be synced"))
        self._lacking_bytes = 0
        reached = self.written

        def durable() -> None:
            if reached > self.durable and self._rows.owner is self:
                del self._rows.undo[: reached - self.durable]
                self.durable = reached
                self.durable_change = self._rows.changes - len(self._rows.undo)

        try:
            await self._disk.do(durable, kind="sync", failed=self._lose)
        except DiskFailed as error:
            raise self._fail(Unavailable(error.message)) from None
        self._check_readable()

    async def room_to_open(self) -> int:
        return 0

    async def shorten_log(self) -> None:
        """It needs no room to be opened."""

    async def reopen(self) -> None:
        """After a full disk: all that was written is there, and durable; else Corrupt. Raises NoSpace, Unavailable."""
        assert isinstance(self.failure, NoSpace), "only a full disk can be waited for"
        await self._disk.wait()
        if self._disk.fails("read"):
            self.failure = Unavailable("the table cannot be opened again")
            raise self.failure
        if self._disk.room_bytes() < _ROOM_TO_OPEN_BYTES:
            raise NoSpace("the disk of the table is full")
        if self._lacking_bytes and self._disk.random.chance(_LOST):
            self._rows.forget_unsynced(self._disk.random)
            self.failure = Corrupt("the table had more changes before the disk was full")
            raise self.failure
        self._lacking_bytes = 0
        self._rows.undo.clear()
        self.durable = self.written
        self.durable_change = self._rows.changes
        self.failure = None

    async def close(self) -> None:
        if self.failure is None:
            await self.flush()

    def _lose(self) -> None:
        """A part of the log that could not be synced is not there when the table is opened again."""
        if self._rows.owner is self and self.failure is None:
            self._fail(Unavailable("the disk of the table failed (sync)"))
            self._rows.forget_unsynced(self._disk.random)

    def _fail(self, failure: ThreefsError) -> ThreefsError:
        self.failure = self.failure or failure
        return failure

    def _check_readable(self) -> None:
        self._check(None if isinstance(self.failure, NoSpace) else self.failure)

    @staticmethod
    def _check(failure: ThreefsError | None) -> None:
        if failure is not None:
            raise type(failure)(failure.message)


async def open_table(disk: SimDisk, path: Path) -> SimTable:
    await disk.wait()
    if disk.fails("read"):
        raise Unavailable(f"{path} cannot be read")
    await disk.make_directory(path)
    rows = disk.tables.get(path)
    if rows is None:
        rows = disk.tables[path] = Rows()
    return SimTable(disk, rows)
