"""An embedded engine that opens its table again after it has failed.

A table that has met a system error (too many open files, a full disk, a failed write) refuses work until it is opened
again. Opening it again has the effect of a restart of the process: everything that was acknowledged is there, and
transactions that were under way fail. So the engine does this in place as soon as the reason is gone, because a process
that stays alive must do its work, or end (I19). If the reason stays, the process ends, unless the reason is a full
disk.

Damage in a sorted file stops all changes once RocksDB merges that file. The store is then opened without merges, which
would only meet it again: what is not damaged can be read and changed until people restore the store from a backup.

It also looks whether the disk still has a reserve for removals. Only its owner can tell a removal from other changes:
both write records. So the owner asks `removals_only` before it adds something.
"""

import contextlib
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path

from threefs.background import BackgroundTasks
from threefs.env.clock import CLOCK, Clock
from threefs.env.sync_policy import SyncPolicy
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.engine_api import MAX_TRANSACTION_SECONDS, TransactionCounts
from threefs.kv.rocks import RocksEngine
from threefs.kv.rocksdb_store import check_room, drop_kept_logs, has_reserve, has_room_to_merge
from threefs.kv.table import Table
from threefs.kv.transaction import BufferedTransaction
from threefs.telemetry.library_logging import LibraryLogger

_CHECK_S = 0.5
#: Transactions that began before the failure hold the old table for a few seconds.
_MAX_REOPEN_S = 60.0

#: So much is little beside the reserve, and can hide no more removed records than fit on the smallest disks.
_LONG_LOG_BYTES = 1 << 20

_LOG = LibraryLogger(__name__)


class RecoveringEngine:
    """Use `await RecoveringEngine.open(directory)`."""

    is_embedded = True
    arrive: Callable[[], Awaitable[None]] | None = None

    def __init__(self, engine: RocksEngine, directory: Path, sync_policy: SyncPolicy | None, clock: Clock) -> None:
        self.transaction_counts = TransactionCounts()
        self._engine: RocksEngine | None = engine  # None while it is being opened again
        self.directory = directory
        self._was_full = False  # when the table failed, or when it was last tried to open it again
        self._merges = True  # until damage is met by one
        self.removals_only = False  # the rest of the disk is the reserve for removals
        self._sync_policy = sync_policy
        self._clock = clock
        self._background = BackgroundTasks()
        self._background.start("recovery of the store", self._watch())

    @classmethod
    async def open(
        cls, directory: Path, *, clock: Clock = CLOCK, sync_policy: SyncPolicy | None = None
    ) -> "RecoveringEngine":
        """Open the store, as RocksEngine.open does."""
        return cls(
            await RocksEngine.open(directory, clock=clock, sync_policy=sync_policy), directory, sync_policy, clock
        )

    def begin(self, lifetime_s: float = MAX_TRANSACTION_SECONDS) -> BufferedTransaction:
        """Begin a transaction. Raises Unavailable while the table is being opened again."""
        if self._engine is None:
            raise Unavailable("the table of this service has failed, and is being opened again")
        return self._engine.begin(lifetime_s)

    @property
    def table(self) -> Table:
        """The table, for backups, which only read it. Raises Unavailable while it is being opened again."""
        if self._engine is None:
            raise Unavailable("the table of this service has failed, and is being opened again")
        return self._engine.table

    @property
    def durable_change(self) -> int:
        """The number of the newest change that the disk has; 0 while the table is being opened again."""
        return self._engine.durable_change if self._engine is not None else 0

    @property
    def full(self) -> bool:
        """Whether it takes no changes because its disk is full."""
        return self._was_full if self._engine is None else isinstance(self._engine.failure, NoSpace)

    async def close(self) -> None:
        await self._background.stop()
        if self._engine is not None:
            await self._engine.close()

    async def _watch(self) -> None:
        """Open the table again whenever it has failed. Raises the reason if that is impossible."""
        while True:
            await self._clock.sleep(_CHECK_S)
            await self._look_at_reserve()
            if self._engine is not None and self._engine.failure is not None and not self._still_full():
                self._heed_damage(self._engine.failure)
                self._engine = await self._open_again(await self._close_failed())
                _LOG.warning("the store is open again")

    async def _look_at_reserve(self) -> None:
        """The logs give way first: while they are long, much must be free to open the store again."""
        try:
            short = not has_reserve(self.directory)
            if short and self._engine is not None and self._engine.failure is None:
                await self._engine.table.shorten_log(_LONG_LOG_BYTES)
                drop_kept_logs(self.directory)
                short = not has_reserve(self.directory)
        except (OSError, ThreefsError):
            return  # the next change meets what is wrong with the disk
        if short != self.removals_only:
            self.removals_only = short
            _LOG.warning("the reserve of the disk is begun" if short else "the disk has its reserve again")
        await self._merge(at_once=short)

    async def _merge(self, *, at_once: bool) -> None:
        """While little is written no merge would come, and what was removed would keep its room, and with it the
        reserve."""
        if self._engine is not None and self._engine.failure is None:
            with contextlib.suppress(OSError, ThreefsError):  # it is tried again
                await self._engine.table.merge_at_once(at_once and has_room_to_merge(self.directory))

    def _still_full(self) -> bool:
        """Whether the reason is a full disk that is still full. Until there is room, the old table can be read."""
        assert self._engine is not None
        if isinstance(self._engine.failure, NoSpace):
            drop_kept_logs(self.directory)
            try:
                check_room(self.directory)
            except NoSpace:
                return True
        return False

    def _heed_damage(self, failure: ThreefsError) -> None:
        """Without merges, no damage keeps the store from taking changes. Raises the reason if it did."""
        if not isinstance(failure, Corrupt):
            return
        if not self._merges:
            raise Corrupt(f"the store takes no changes, also without merging its files: {failure}")
        self._merges = False
        _LOG.error(
            "the store is damaged, and goes on without merging its files: restore it from a backup "
            "(docs/troubleshooting.md)",
            directory=str(self.directory),
            error=str(failure),
        )

    async def _close_failed(self) -> str:
        """Close the table that has failed. Returns the reason as a text: the error itself has a traceback, which holds
        the transaction that met it, and so the table."""
        self._was_full = self.full
        engine, self._engine = self._engine, None
        assert engine is not None
        reason = str(engine.failure)
        _LOG.error("the store has failed, and is being opened again", directory=str(self.directory), error=reason)
        try:
            await engine.close()
        except ThreefsError as error:  # it raises its error again
            _LOG.info("the failed store has closed with an error", error=str(error))
        return reason

    async def _open_again(self, reason: str) -> RocksEngine:
        """The engine over the table that is opened again. Raises Corrupt; Unavailable if no attempt of a minute
        succeeds."""
        began = self._clock.monotonic()
        while True:
            gc.collect()  # tracebacks of errors may hold transactions that have failed
            try:
                return await RocksEngine.open(
                    self.directory, clock=self._clock, sync_policy=self._sync_policy, merges=self._merges
                )
            except Corrupt:
                raise
            except (ThreefsError, OSError) as error:
                self._was_full = isinstance(error, NoSpace)
                if not self._was_full and self._clock.monotonic() - began > _MAX_REOPEN_S:
                    raise Unavailable(
                        f"the store has failed ({reason}), and cannot be opened again: {error}"
                    ) from error
            await self._clock.sleep(_CHECK_S)
