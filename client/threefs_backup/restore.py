"""Makes a store from a backup: the backup is checked, then loaded into an empty store, which is marked as restored.

The first service that opens a restored store raises its numbers, so that no number of the lost part is assigned
again: the manager raises the versions of the routing and of the chains, the meta service raises the epoch of inode
numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from threefs.errors import Corrupt, NotFound
from threefs.kv import dump, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.restore_mark import RESTORE_KEY, in_part, renew_mark
from threefs.kv.wal_batches import changes
from threefs_backup import archive, log_file
from threefs_backup.archive import Snapshot

_BATCH_BYTES = 400_000
_BATCH_KEYS = 1000
_WRITE_S = 60.0

Changes = dict[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """The state of one store that a restore makes: a snapshot, and a part of its log."""

    snapshot: Snapshot
    as_of_ns: int  # it has everything that was acknowledged before this moment
    change: int  # number of its newest change
    length_bytes: int  # length of the part of the log
    up_to_damage: bool = False

    def frames(self) -> Iterator[log_file.Frame]:
        return log_file.frames(self.snapshot.log, self.snapshot.change, up_to_damage=self.up_to_damage)


def find_restore_point(
    directory: Path,
    role: str,
    until_ns: int | None = None,
    *,
    up_to_damage: bool = False,
    number: int | None = None,
) -> RestorePoint:
    """The newest state in a backup, or the newest complete one that is not after `until_ns`. Checks the whole backup.

    Raises NotFound if there is none, and Corrupt. With `up_to_damage`, uses the part of a log before its damage; with
    `number`, that snapshot.
    """
    snapshot = archive.newest(directory, role) if number is None else archive.numbered(directory, role, number)
    if snapshot is None:
        which = "" if number is None else f" {number}"
        raise NotFound(f"{directory} has no whole snapshot{which} of the store of the {role}")
    try:
        with snapshot.dump.open("rb") as source:
            dump.check(source)
    except OSError as error:  # Corrupt is one
        raise Corrupt(f"{snapshot.dump}: {error}") from None
    point = RestorePoint(snapshot, snapshot.taken_ns, snapshot.change, 0, up_to_damage)
    try:
        return _read_log(point, until_ns)
    except Corrupt as error:
        raise Corrupt(
            f"{error}; `threefs restore --up-to-damage` restores what was written before that place"
        ) from None


def _read_log(point: RestorePoint, until_ns: int | None) -> RestorePoint:
    """The snapshot with its log, up to `until_ns`."""
    snapshot, change = point.snapshot, point.snapshot.change
    for frame in point.frames():
        change += frame.changes
        for _ in changes(frame.batch):
            pass  # parse every batch before anything is written
        if frame.changes and until_ns is None:
            point = RestorePoint(snapshot, point.as_of_ns, change, frame.end, point.up_to_damage)
        elif not frame.changes and (until_ns is None or frame.time_ns <= until_ns):
            # Not the latest time of all: the clock may have been set back, and what is said must hold by it now.
            point = RestorePoint(snapshot, frame.time_ns, change, frame.end, point.up_to_damage)
    return point


async def restore(point: RestorePoint, engine: Engine, *, exclusive: bool = False) -> None:
    """Fill an empty store. A restore that is interrupted leaves a store that services refuse.

    With `exclusive` no other process can be filling the store, so the records of an interrupted restore are removed
    first. Raises AlreadyExists if the store is not empty.
    """
    if exclusive and await in_part(engine.begin()):
        await empty_store(engine)
    await dump.begin_restore(engine)
    with point.snapshot.dump.open("rb") as source:
        await dump.fill(engine, dump.read(source))
    for batch in _batches(point):
        await _apply(engine, batch)
    await dump.end_restore(engine, point.as_of_ns)


async def empty_store(engine: Engine) -> None:
    """Remove all records but the mark of a restore, of a store that was filled in part.

    Each page begins behind the one before: to come by the places of removed records takes as long as their number is.
    """
    after = b""
    while pairs := await engine.begin().get_range(after, dump.KEYS_END, limit=_BATCH_KEYS, snapshot=True):
        await _apply(engine, {key: None for key, _ in pairs if key != RESTORE_KEY})
        after = pairs[-1][0] + b"\0"


def _batches(point: RestorePoint) -> Iterator[Changes]:
    """The changes of the log in batches; a batch has only the last change of each key. Raises Corrupt."""
    batch: Changes = {}
    size = end = 0
    for frame in point.frames():
        if frame.end > point.length_bytes:
            break
        end = frame.end
        for key, value in changes(frame.batch):
            if key == RESTORE_KEY:
                continue
            if size > _BATCH_BYTES or len(batch) >= _BATCH_KEYS:
                yield batch
                batch, size = {}, 0
            batch[key] = value
            size += len(key) + len(value or b"")
    if end < point.length_bytes:  # a part that was read when the log was checked
        raise Corrupt(f"{point.snapshot.log} is damaged at byte {end} now; repeat the restore")
    if batch:
        yield batch


async def _apply(engine: Engine, batch: Changes) -> None:
    async def write(tx: Transaction) -> None:
        await renew_mark(tx)
        for key, value in batch.items():
            if value is None:
                tx.clear(key)
            else:
                tx.set(key, value)

    await retry.run(engine, write, timeout_s=_WRITE_S, replayable=True)
