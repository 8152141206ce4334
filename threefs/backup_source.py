"""Serving backups of an embedded store: a snapshot, page by page, then the log of the writes after it.

A snapshot is a view of the table, which keeps old files on the disk. So few snapshots are kept, and none for long after
its last page. A backup receives only what is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.env.worker_threads import ThreadWorker
from threefs.errors import NotFound, NotSupported, Overloaded, TooOld
from threefs.kv.dump import KEYS_END
from threefs.kv.recovering_engine import RecoveringEngine
from threefs.kv.rocks import RocksEngine
from threefs.kv.table import Table, TableView
from threefs.kv.wal_reader import LogReader
from threefs.rpc.methods import READ_LOG, READ_SNAPSHOT, Method
from threefs.wire import backup_pb2 as pb

_PAGE_BYTES = 1 << 20
_PAGE_ROWS = 16  # looked up at a time; of the longest values two times as many fit in one message
_MAX_SNAPSHOTS = 4
_FORGET_S = 15.0  # a table that has failed is opened again only when nobody holds on to it
_LOG_BYTES = 2 << 20


class Serves(Protocol):
    def serve(
        self, method: Method[Any, Any], handler: Callable[[Any], Coroutine[Any, Any, Any]], *, quick: bool = False
    ) -> None: ...


@dataclass(slots=True)
class _Snapshot:
    view: TableView
    sequence: int
    used_at: float
    read: bool = False  # to its end; it is kept for a repeated request of the last page


class BackupSource:
    """The backups of one engine. A store that is not embedded is backed up by its own tools."""

    def __init__(
        self,
        engine: object,
        *,
        wait_admitted: Callable[[], Awaitable[None]] | None = None,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        """`wait_admitted` returns when it is known that the store is that of the cluster, and raises if that cannot be
        said. An empty store, or an older copy, would take the place of what a backup has of the right one."""
        self._wait_admitted = wait_admitted
        self._engine = engine if isinstance(engine, RocksEngine | RecoveringEngine) else None
        self._clock = clock
        self._random = random
        self._snapshots: dict[int, _Snapshot] = {}
        self._lineage = ""
        self._reader: LogReader | None = None
        self._worker = ThreadWorker("threefs-backup") if self._engine is not None else None
        self._forgetting: asyncio.TimerHandle | None = None

    def bind(self, server: Serves) -> None:
        server.serve(READ_SNAPSHOT, self.read_snapshot)
        server.serve(READ_LOG, self.read_log)

    async def close(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._snapshots.clear()
        if self._worker is not None:
            await self._worker.close()

    async def read_snapshot(self, request: pb.ReadSnapshotRequest) -> pb.ReadSnapshotReply:
        """The next page of one moment of the store. Raises NotFound, Overloaded, NotSupported."""
        table = await self._admitted()
        number, snapshot = await self._snapshot(table, request.snapshot)
        reply = pb.ReadSnapshotReply(snapshot=number, lineage=self._lineage, sequence=snapshot.sequence, more=True)
        after = request.after + b"\0" if request.begun else b""
        size = 0
        while size < _PAGE_BYTES:
            pairs = snapshot.view.scan(after, KEYS_END, _PAGE_ROWS, False)
            for key, value in pairs:
                reply.pairs.add(key=key, value=value)
                size += len(key) + len(value)
            if len(pairs) < _PAGE_ROWS:
                reply.more = False
                snapshot.read = True
                break
            after = pairs[-1][0] + b"\0"
        return reply

    async def read_log(self, request: pb.ReadLogRequest) -> pb.ReadLogReply:
        """The changes behind a given one. Raises TooOld: a new snapshot is needed. NotSupported."""
        table = await self._admitted()
        assert self._worker is not None, "an embedded store has one"
        if request.lineage != self._known_lineage(table):
            raise TooOld("this store is not the one that was backed up so far; take a new snapshot")
        await table.flush()  # no caller has an answer about what this makes durable before its own flush has ended
        durable = table.durable_change
        if self._reader is None:
            self._reader = LogReader(table.directory)
        checksum = request.checksum if request.HasField("checksum") else None
        writes = await self._worker.run(self._reader.read, request.after, durable, _LOG_BYTES, checksum)
        reply = pb.ReadLogReply()
        last = request.after
        for write in writes:
            reply.writes.add(first=write.first, changes=write.changes, batch=write.batch)
            last = write.first + write.changes - 1
        reply.more = last < durable
        return reply

    async def _snapshot(self, table: Table, number: int) -> tuple[int, _Snapshot]:
        now = self._clock.monotonic()
        self._forget()
        if number:
            known = self._snapshots.get(number)
            if known is None:
                raise NotFound(
                    f"snapshot {number} is not kept any more ({_FORGET_S:.0f} s after its last page); take a new one"
                )
            known.used_at = now
            return number, known
        if len(self._snapshots) >= _MAX_SNAPSHOTS:
            self._snapshots = {number: known for number, known in self._snapshots.items() if not known.read}
        if len(self._snapshots) >= _MAX_SNAPSHOTS:
            raise Overloaded(
                f"{_MAX_SNAPSHOTS} snapshots of the store are being read, the most; try again after a backup has ended"
            )
        self._known_lineage(table)
        # No wait between the two: all writes are made on this loop.
        fresh = _Snapshot(table.view(), table.change, now)
        number = int.from_bytes(self._random.token(8), "big") or 1
        self._snapshots[number] = fresh
        self._forget()
        await table.sync()  # what it shows must not vanish
        return number, fresh

    def _forget(self) -> None:
        """Drop the snapshots that have not been read for a while, now and again later."""
        before = self._clock.monotonic() - _FORGET_S
        for old in [old for old, known in self._snapshots.items() if known.used_at <= before]:
            del self._snapshots[old]
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(_FORGET_S, self._forget) if self._snapshots else None

    async def _admitted(self) -> Table:
        self._embedded()
        if self._wait_admitted is not None:
            await self._wait_admitted()
        return self._embedded()  # it may be another one now

    def _embedded(self) -> Table:
        if self._engine is None:
            raise NotSupported(
                "the store is not embedded: back it up by the means of etcd or PostgreSQL, or with `threefs meta dump "
                "--engine URL` (the URL is in the settings of the service)"
            )
        return self._engine.table

    def _known_lineage(self, table: Table) -> str:
        """Drawn by RocksDB when the store was made; a store that is restored is made anew."""
        if not self._lineage:
            self._lineage = Path(table.directory / "IDENTITY").read_text(encoding="ascii").strip()
        return self._lineage
