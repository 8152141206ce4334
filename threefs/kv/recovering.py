"""An embedded engine that is opened again after its table has failed.

A table that has met an error of the system (too many open files, a full disk, a failed write) refuses its work until it
is opened anew. That is the same as a restart of the process: what was durable is there, what was answered was durable,
and transactions that were under way fail. So it is done in place as soon as the reason is gone: a process that stays
alive must do its work, or end (I19). If the reason stays, other than a full disk, the process ends.
"""

import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from threefs.background import BackgroundTasks
from threefs.env.clock import CLOCK, Clock
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.rocks import RocksEngine
from threefs.kv.rocksdb_store import check_room
from threefs.kv.table import Table
from threefs.kv.transaction import BufferedTransaction

_LOOK_S = 0.5
#: Transactions of before hold on to the old table for a few seconds.
_PATIENCE_S = 60.0

_LOG = structlog.get_logger()


class RecoveringEngine:
    """Use `await RecoveringEngine.open(directory)`."""

    is_embedded = True
    arrive: Callable[[], Awaitable[None]] | None = None

    def __init__(self, engine: RocksEngine, directory: Path, sync_policy: SyncPolicy | None, clock: Clock) -> None:
        self.transaction_counts = TransactionCounts()
        self._engine: RocksEngine | None = engine  # None while it is being opened again
        self._directory = directory
        self._sync_policy = sync_policy
        self._clock = clock
        self._background = BackgroundTasks()
        self._background.start("recovery of the store", self._watch())

    @classmethod
    async def open(
        cls, directory: Path, *, clock: Clock = CLOCK, sync_policy: SyncPolicy | None = None
    ) -> "RecoveringEngine":
        """As RocksEngine.open."""
        return cls(
            await RocksEngine.open(directory, clock=clock, sync_policy=sync_policy), directory, sync_policy, clock
        )

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> BufferedTransaction:
        """Raises Unavailable while the table is opened again."""
        if self._engine is None:
            raise Unavailable(f"the table {self._directory} has failed, and is being opened again")
        return self._engine.begin(lifetime_s)

    @property
    def table(self) -> Table:
        """For backups, which only read. Raises Unavailable while it is opened again."""
        if self._engine is None:
            raise Unavailable(f"the table {self._directory} has failed, and is being opened again")
        return self._engine.table

    async def close(self) -> None:
        await self._background.stop()
        if self._engine is not None:
            await self._engine.close()

    async def _watch(self) -> None:
        """Raises the reason when the table cannot be opened again."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if self._engine is not None and self._engine.failure is not None and not self._still_full():
                self._engine = await self._open_again(await self._let_go())
                _LOG.warning("the store is open again")

    def _still_full(self) -> bool:
        """Until there is room, what is there can be read."""
        assert self._engine is not None
        if isinstance(self._engine.failure, NoSpace):
            try:
                check_room(self._directory)
            except NoSpace:
                return True
        return False

    async def _let_go(self) -> str:
        """Close the table that has failed; why it has. Nothing here may hold the error itself: its traceback knows the
        transaction that met it, and so the table."""
        engine, self._engine = self._engine, None
        assert engine is not None
        reason = str(engine.failure)
        _LOG.error("the store has failed and is opened again", error=reason)
        try:
            await engine.close()
        except ThreefsError as error:  # it repeats what has made it fail
            _LOG.info("the failed store said at its end", error=str(error))
        return reason

    async def _open_again(self, reason: str) -> RocksEngine:
        """Raises Corrupt, or Unavailable when it has been tried for long enough."""
        began = self._clock.monotonic()
        while True:
            gc.collect()  # transactions that have failed may be held by the tracebacks of their errors
            try:
                return await RocksEngine.open(self._directory, clock=self._clock, sync_policy=self._sync_policy)
            except Corrupt:
                raise
            except (ThreefsError, OSError) as error:
                full = isinstance(error, NoSpace)
                if not full and self._clock.monotonic() - began > _PATIENCE_S:
                    raise Unavailable(f"the store failed ({reason}) and cannot be opened again: {error}") from error
            await self._clock.sleep(_LOOK_S)
