"""A store that is written to while it is backed up: all in this process, but for the disk."""

import asyncio
from pathlib import Path
from typing import Any

from threefs_backup import restore as restoring
from threefs_backup.follower import Follower
from threefs_backup.restore import RestorePoint

from threefs.backup_source import BackupSource
from threefs.errors import ThreefsError
from threefs.kv.dump import KEYS_END
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import RESTORE_KEY
from threefs.kv.rocks import RocksEngine
from threefs.kv.wal_recovery import KEPT
from threefs.rpc.methods import READ_LOG, READ_SNAPSHOT, Method

Rows = dict[bytes, bytes]


class Source:
    """A service with an embedded store. `state` is what has been acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state: Rows = {}
        self.failures: list[ThreefsError] = []
        self.asked: list[str] = []
        self.snapshots_go_on = asyncio.Event()  # no page of one is served while it is not set
        self.snapshots_go_on.set()
        self._engine: RocksEngine | None = None
        self._source: BackupSource | None = None

    @property
    def engine(self) -> RocksEngine:
        assert self._engine is not None
        return self._engine

    async def start(self) -> "Source":
        self._engine = await RocksEngine.open(self.directory)
        self._source = BackupSource(self._engine)
        return self

    async def stop(self) -> None:
        assert self._source is not None
        await self._source.close()
        await self.engine.close()

    async def write(self, changes: dict[bytes, bytes | None]) -> None:
        tx = self.engine.begin()
        for key, value in changes.items():
            if value is None:
                tx.clear(key)
                self.state.pop(key, None)
            else:
                tx.set(key, value)
                self.state[key] = value
        await tx.commit()

    def rotate(self) -> None:
        """The store goes on in another log."""
        self.engine.table._store.flush()

    def forget_logs(self) -> None:
        """Those that the store does not need any more, as after an hour."""
        for log in (self.directory / KEPT).glob("*.log"):
            log.unlink()

    async def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        assert self._source is not None
        self.asked.append(method.name)
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.sleep(0)
        if method is READ_SNAPSHOT:
            await self.snapshots_go_on.wait()
        handler = {READ_SNAPSHOT: self._source.read_snapshot, READ_LOG: self._source.read_log}[method]
        return await handler(method.request.FromString(request.SerializeToString()))  # type: ignore[operator]

    def follower(self, archive: Path, role: str = "meta", **options: Any) -> Follower:
        archive.mkdir(exist_ok=True)
        return Follower(archive, role, self, **options)


async def restored(point: RestorePoint) -> Rows:
    """What a store holds that is made from the copy."""
    engine = MemoryEngine()
    await restoring.restore(point, engine)
    pairs = await engine.begin().get_range(b"", KEYS_END)
    return {key: value for key, value in pairs if key != RESTORE_KEY}
