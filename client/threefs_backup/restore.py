"""Makes a store from a backup: all of it is checked, then loaded into an empty store, which is marked as restored.

The service that first serves from it raises what must be raised: the manager the versions of the routing and of the
chains, the meta service the epoch of inode numbers, so that no number of a file that was lost is given out again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from threefs.errors import Corrupt, NotFound
from threefs.kv import dump, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.restore_mark import RESTORE_KEY, in_part
from threefs.kv.wal_batches import changes
from threefs_backup import archive, log_file
from threefs_backup.archive import Snapshot

_BATCH_BYTES = 400_000
_BATCH_KEYS = 1000
_WRITE_S = 60.0

Changes = dict[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """What a backup has of one store, up to a moment."""

    snapshot: Snapshot
    as_of_ns: int  # all that had been acknowledged then is in it
    change: int  # the newest that is restored
    length_bytes: int  # of the log, as far as it is used
    up_to_damage: bool = False

    def frames(self) -> Iterator[log_file.Frame]:
        return log_file.frames(self.snapshot.log, self.snapshot.change, up_to_damage=self.up_to_damage)


def find_restore_point(
    directory: Path, role: str, until_ns: int | None = None, *, up_to_damage: bool = False
) -> RestorePoint:
    """The newest state, or the newest that is complete not after `until_ns`. Checks all of it.

    Raises NotFound if there is none, Corrupt; of a log that is damaged in the middle the begin may be taken all the
    same.
    """
    snapshot = archive.newest(directory, role)
    if snapshot is None:
        raise NotFound(f"{directory} has no whole snapshot of the store of the {role}")
    with snapshot.dump.open("rb") as source:
        try:
            dump.check(source)
        except Corrupt as error:
            raise Corrupt(f"{snapshot.dump}: {error}") from None
    point = RestorePoint(snapshot, snapshot.taken_ns, snapshot.change, 0, up_to_damage)
    try:
        return _read_log(point, until_ns)
    except Corrupt as error:
        raise Corrupt(
            f"{error}; `threefs restore --up-to-damage` restores what was written before that place"
        ) from None


def _read_log(point: RestorePoint, until_ns: int | None) -> RestorePoint:
    """With as much of the log as is wanted."""
    snapshot, change = point.snapshot, point.snapshot.change
    for frame in point.frames():
        change += frame.changes
        for _ in changes(frame.batch):
            pass  # a batch that cannot be read is found before anything is written
        if frame.changes and until_ns is None:
            point = RestorePoint(snapshot, point.as_of_ns, change, frame.end, point.up_to_damage)
        elif not frame.changes and (until_ns is None or frame.time_ns <= until_ns):
            point = RestorePoint(snapshot, max(point.as_of_ns, frame.time_ns), change, frame.end, point.up_to_damage)
    return point


async def restore(point: RestorePoint, engine: Engine, *, exclusive: bool = False) -> None:
    """Fill an empty store. `alone`: nobody else can be filling it, so what a restore that was interrupted has left is
    removed first. Raises AlreadyExists if the store is not empty; interrupted, it leaves a store that is refused."""
    if exclusive and await in_part(engine.begin()):
        await _empty(engine)
    await dump.begin_restore(engine)
    with point.snapshot.dump.open("rb") as source:
        await dump.fill(engine, dump.read(source))
    for batch in _batches(point):
        await _apply(engine, batch)
    await dump.end_restore(engine, point.as_of_ns)


async def _empty(engine: Engine) -> None:
    """Of all but the mark."""
    while True:
        pairs = await engine.begin().get_range(b"", dump.KEYS_END, limit=_BATCH_KEYS, snapshot=True)
        old: Changes = {key: None for key, _ in pairs if key != RESTORE_KEY}
        if not old:
            return
        await _apply(engine, old)


def _batches(point: RestorePoint) -> Iterator[Changes]:
    """The changes of the log: in one batch only the last of each key counts."""
    batch: Changes = {}
    size = 0
    for frame in point.frames():
        if frame.end > point.length_bytes:
            break
        for key, value in changes(frame.batch):
            if key == RESTORE_KEY:
                continue
            if size > _BATCH_BYTES or len(batch) >= _BATCH_KEYS:
                yield batch
                batch, size = {}, 0
            batch[key] = value
            size += len(key) + len(value or b"")
    if batch:
        yield batch


async def _apply(engine: Engine, batch: Changes) -> None:
    async def write(tx: Transaction) -> None:
        for key, value in batch.items():
            if value is None:
                tx.clear(key)
            else:
                tx.set(key, value)

    await retry.run(engine, write, timeout_s=_WRITE_S, replayable=True)
