"""The embedded engine: optimistic serializable transactions over a table on the local disk.

Conflicts are detected in this process, so no other process may have the directory open. A commit writes without a sync,
then waits for a flush that it shares with other commits. Later transactions see its writes at once. So a transaction
that only reads also waits until everything that it has read is durable.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from threefs.env.clock import CLOCK, Clock
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import Conflict, Corrupt, MaybeCommitted, ThreefsError, Unavailable
from threefs.kv.conflicts import History
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.table import Table
from threefs.kv.transaction import BufferedTransaction

_WINDOW_S = 2 * MAX_TRANSACTION_SECONDS


class RocksEngine:
    """Use `await RocksEngine.open(directory)`."""

    is_embedded = True

    #: Nothing runs before a read, because reads are local and quick.
    arrive: Callable[[], Awaitable[None]] | None = None

    def __init__(self, table: Table, *, clock: Clock = CLOCK) -> None:
        self._table = table
        self._clock = clock
        self.transaction_counts = TransactionCounts()
        self._history = History(_WINDOW_S)  # its versions are the numbers of the table's writes

    @classmethod
    async def open(
        cls, directory: Path, *, clock: Clock = CLOCK, sync_policy: SyncPolicy | None = None, merges: bool = True
    ) -> "RocksEngine":
        """Open the store in `directory`. With a `sync_policy`, commits may be synced on the event loop. `merges`: as of
        `open_store`.

        Raises Unavailable (in use, unreadable), Corrupt, NoSpace.
        """
        opening = Table.open(directory, sync_policy=sync_policy, clock=clock, only_copy=True, merges=merges)
        return cls(await opening, clock=clock)

    @property
    def table(self) -> Table:
        """The table, for backups, which only read it."""
        return self._table

    @property
    def durable_change(self) -> int:
        """The number of the newest change that the disk has. It only rises, also over starts."""
        return self._table.durable_change

    @property
    def failure(self) -> ThreefsError | None:
        """The error with which it refuses writes (NoSpace, Corrupt) or all work; None while it works."""
        return self._table.failure

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> BufferedTransaction:
        return BufferedTransaction(self, self._table.view(), self._history.version, self._clock, lifetime_s)

    async def close(self) -> None:
        await self._table.close()

    async def confirm(self, attempt: BufferedTransaction) -> None:
        durable = self._table.durable
        if attempt.version <= durable:
            return
        newest = self._history.newest(attempt.seen, self._history.newest(attempt.reads, durable))
        try:
            await self._table.flush(min(newest, attempt.version))  # it has seen nothing newer
        except Corrupt as error:  # the table takes no changes: what was read is sound
            raise Unavailable(f"the store is opened again: {error}") from error

    async def commit(self, attempt: BufferedTransaction) -> None:
        if self._history.newest(attempt.reads, attempt.version) > attempt.version:
            raise Conflict
        try:
            number = self._table.write(attempt.writes)  # no await since the check, so no other commit is in between
        except Corrupt as error:  # its owner opens it again, and it was no record of this transaction
            raise Unavailable(f"changes have to wait: {error}") from error
        version = self._history.record(tuple(attempt.writes), self._clock.monotonic())
        assert version == number, "only this engine writes to the table"
        try:
            await self._table.flush(number)
        except ThreefsError as error:
            raise MaybeCommitted(f"the commit may not be durable: {error}") from error
