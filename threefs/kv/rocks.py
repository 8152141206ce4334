"""The embedded engine: optimistic serializable transactions over a table on the local disk.

All conflicts are judged in this process, so nobody else may have the directory open. A commit is written unsynced and
then waits for the flush that it shares with the others. Later transactions see it at once, and therefore a transaction
that only reads waits too, until what it has read is durable.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from threefs.env.clock import CLOCK, Clock
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import Conflict, MaybeCommitted, ThreefsError
from threefs.kv.conflicts import History
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.table import Table
from threefs.kv.transaction import BufferedTransaction

_WINDOW_S = 2 * MAX_TRANSACTION_SECONDS


class RocksEngine:
    """Use `await RocksEngine.open(directory)`."""

    is_embedded = True

    #: Reads are local and quick.
    arrive: Callable[[], Awaitable[None]] | None = None

    def __init__(self, table: Table, *, clock: Clock = CLOCK) -> None:
        self._table = table
        self._clock = clock
        self.transaction_counts = TransactionCounts()
        self._history = History(_WINDOW_S)  # its versions are the numbers of the table's writes

    @classmethod
    async def open(
        cls, directory: Path, *, clock: Clock = CLOCK, sync_policy: SyncPolicy | None = None
    ) -> "RocksEngine":
        """With a `sync_policy`, commits may be synced on the event loop.

        Raises Unavailable (in use, unreadable), Corrupt, NoSpace.
        """
        return cls(await Table.open(directory, sync_policy=sync_policy, clock=clock, keep_logs=True), clock=clock)

    @property
    def table(self) -> Table:
        """For backups, which only read."""
        return self._table

    @property
    def failure(self) -> ThreefsError | None:
        """Why the engine refuses writes (NoSpace) or everything; None while it is well."""
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
        await self._table.flush(min(newest, attempt.version))  # what came after its beginning it has not seen

    async def commit(self, attempt: BufferedTransaction) -> None:
        if self._history.newest(attempt.reads, attempt.version) > attempt.version:
            raise Conflict
        number = self._table.write(attempt.writes)  # no await since the check, so nobody came between
        version = self._history.record(tuple(attempt.writes), self._clock.monotonic())
        assert version == number, "somebody else writes to the table"
        try:
            await self._table.flush(number)
        except ThreefsError as error:
            raise MaybeCommitted(f"the commit may not be durable: {error}") from error
