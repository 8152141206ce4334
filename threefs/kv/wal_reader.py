"""Reads the writes of a table from its logs, in their order, while the table is in use.

The logs are those that RocksDB still needs, and older ones that it keeps for a while. Only durable writes may be read,
because a power cut could undo the others.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from threefs.checksums import crc32c
from threefs.errors import TooOld
from threefs.kv.wal_recovery import BLOCK_BYTES, KEPT, logs, records

_PIECE_BYTES = 4 << 20  # larger than any write
_PLACES = 32  # where the last calls ended; several backups may follow, each at its own pace


@dataclass(frozen=True, slots=True)
class Write:
    """One write, which is a batch of changes."""

    first: int  # the number of its first change
    changes: int
    batch: bytes  # as in the log (`wal_batches.py`)


@dataclass(slots=True)
class _Place:
    log: str
    offset: int  # of the record of the change after `change`, or of zeros
    change: int
    checksum: int | None = None  # of the write that ends with this change; None: it was not read


class LogReader:
    """Reads writes in turn. It remembers where the last few calls ended, so that the next ones need not search."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._places: dict[int, _Place] = {}  # by their change, the newest last

    def read(self, after: int, durable: int, limit_bytes: int, checksum: int | None = None) -> list[Write]:
        """The durable writes after the change `after`, up to about `limit_bytes`; none if there are none yet.

        `checksum` is what the caller knows of the write that ends with that change. Raises TooOld if it is another one,
        if the logs begin later, or if the store has fewer changes than `after`.
        """
        if after > durable:
            raise TooOld(
                f"the store has {durable} changes, but a backup of it has {after}: the store is an older copy of itself"
            )
        known = self._places.get(after)
        place = self._find(after) if known is None else replace(known)
        writes: list[Write] = []
        size = 0
        while place.change < durable and size < limit_bytes:
            found = self._next(place, durable, checksum if place.change == after else None)
            if not found:
                break
            writes += found
            size += sum(len(write.batch) for write in found)
        if place.change == after < durable:
            raise TooOld(f"the logs of the store have no change {after + 1}, but the store has {durable} changes")
        self._places.pop(place.change, None)
        self._places[place.change] = place
        if len(self._places) > _PLACES:
            del self._places[next(iter(self._places))]
        return writes

    def _find(self, after: int) -> _Place:
        """A place from which all writes after the change `after` can be read, and the one that ends with it, if the
        logs go back so far."""
        for log in reversed(logs(self._directory)):
            found = self._piece(log.name, 0)
            if found and found[0][0].first <= after:
                return _Place(log.name, 0, after)
        oldest = next(iter(logs(self._directory)), None)
        if oldest is None:
            raise TooOld("the store has no log")
        return _Place(oldest.name, 0, after)

    def _next(self, place: _Place, durable: int, checksum: int | None) -> list[Write]:
        """Read some writes from the place on, and advance it. Raises TooOld, also if the write before the place has
        another checksum: the numbers of an older copy of the store, which has gone on, say nothing."""
        while True:
            number = int(Path(place.log).stem)
            # Searched for before the log is read: a log that has a following one does not grow any more.
            following = next((log for log in logs(self._directory) if int(log.stem) > number), None)
            piece = self._piece(place.log, place.offset)
            writes: list[Write] = []
            for write, end in piece:
                last = write.first + write.changes - 1
                if last > durable:
                    return writes
                place.offset = end
                if last <= place.change:
                    place.checksum = crc32c(write.batch) if last == place.change else None
                    continue
                if checksum is not None and not writes and checksum != place.checksum:
                    raise TooOld(f"change {place.change} of the store is not the one that the backup has")
                if write.first != place.change + 1:
                    raise TooOld(f"the logs of the store go from change {place.change} to {write.first}")
                place.change, place.checksum = last, crc32c(write.batch)
                writes.append(write)
            if writes:
                return writes
            if not piece:
                if following is None:
                    return []
                place.log, place.offset = following.name, 0

    def _piece(self, log: str, offset: int) -> list[tuple[Write, int]]:
        """The complete records in a piece of a log, each with the offset of its end."""
        content = b""
        base = offset - offset % BLOCK_BYTES
        for directory in (self._directory, self._directory / KEPT, self._directory):  # RocksDB may be moving it now
            try:
                descriptor = os.open(directory / log, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                content = os.pread(descriptor, _PIECE_BYTES, base)
            finally:
                os.close(descriptor)
            break
        view = memoryview(content)
        return [
            (Write(first, changes, batch), base + end) for first, changes, batch, end in records(view, offset - base)
        ]
