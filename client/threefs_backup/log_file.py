"""The log of a backup: the changes of a store in order, and moments up to which the log is complete.

A frame is a head (magic, number of the first change, changes, length, time, checksum of head and body) and a batch in
the form of the store's own log. A frame without changes is a mark of completeness: everything that was acknowledged
before its time, in ns by the clock of the program that makes the backup, lies before it. An incomplete frame at the
end was being written when the backup was interrupted; it is truncated before more is written. A bad frame before good
ones is damage.
"""

import contextlib
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from threefs.checksums import crc32c
from threefs.errors import Corrupt
from threefs.wire import backup_pb2 as pb

_MAGIC = b"3fsL"
_HEAD = struct.Struct("<4sQIIq")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _HEAD.size + _CRC.size
_MAX_BATCH_BYTES = 64 << 20  # of one batch
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    first: int  # number of its first change; in a mark: number of the next change
    changes: int  # 0: a mark of completeness
    time_ns: int
    batch: bytes
    end: int  # where the next frame begins


@dataclass(frozen=True, slots=True)
class LogState:
    """How far a log can be read."""

    change: int  # number of the newest change
    as_of_ns: int
    length_bytes: int
    checksum: int | None = None  # of the write that ends with that change; None: only the snapshot has it


def frames(path: Path, after: int, *, up_to_damage: bool = False) -> Iterator[Frame]:
    """The frames of a log, without an incomplete one at the end. `after` is the number before the first change.

    A backup may be appending to the log: what comes after the call is left out. Raises Corrupt, also where the disk
    does not give the bytes any more; with `up_to_damage`, stops at the damage instead.
    """
    with path.open("rb") as log:
        offset, end = 0, os.fstat(log.fileno()).st_size
        try:
            while (frame := _read(log, offset)) is not None and frame.end <= end:
                if frame.first != after + 1:
                    raise Corrupt(f"{path} goes from change {after} to {frame.first}")
                after += frame.changes
                offset = frame.end
                yield frame
            if not up_to_damage and _has_frame_after(log, offset + 1, end):
                raise Corrupt(f"{path} is damaged at byte {offset}, and goes on behind it")
        except Corrupt:
            if not up_to_damage:
                raise


def _read(log: BinaryIO, offset: int) -> Frame | None:
    head = _bytes_at(log, offset, _HEAD_BYTES)
    if len(head) < _HEAD_BYTES:
        return None
    magic, first, changes, length, time_ns = _HEAD.unpack_from(head)
    if magic != _MAGIC or length > _MAX_BATCH_BYTES:
        return None
    batch = _bytes_at(log, offset + _HEAD_BYTES, length)
    if len(batch) < length or _CRC.unpack_from(head, _HEAD.size)[0] != crc32c(head[: _HEAD.size] + batch):
        return None
    return Frame(first, changes, time_ns, batch, offset + _HEAD_BYTES + length)


def _bytes_at(log: BinaryIO, offset: int, length: int) -> bytes:
    """Fewer only at the end of the file. Raises Corrupt for bytes that cannot be read, which are no end of a log: one
    is truncated there."""
    found = b""
    try:
        while len(found) < length and (more := os.pread(log.fileno(), length - len(found), offset + len(found))):
            found += more  # a read that meets a bad sector gives what lies before it; the next one fails
    except OSError as error:
        if error.errno == errno.ENOMEM:  # this says nothing about the disk
            raise
        raise Corrupt(f"{log.name} cannot be read at byte {offset + len(found)}: {error.strerror}") from None
    return found


def _has_frame_after(log: BinaryIO, offset: int, end: int) -> bool:
    """Whether a complete frame begins at `offset` or later, and is over by `end`."""
    while piece := _bytes_at(log, offset, _PIECE_BYTES):
        at = -1
        while (at := piece.find(_MAGIC, at + 1)) >= 0:
            found = _read(log, offset + at)
            if found is not None and found.end <= end:
                return True
        if len(piece) < _PIECE_BYTES:
            return False
        offset += len(piece) - len(_MAGIC) + 1
    return False


def log_state(path: Path, after: int, taken_ns: int) -> LogState:
    """How far the log can be read. Raises Corrupt."""
    found = LogState(after, taken_ns, 0)
    for frame in frames(path, after):
        as_of_ns = found.as_of_ns if frame.changes else frame.time_ns
        checksum = crc32c(frame.batch) if frame.changes else found.checksum
        found = LogState(found.change + frame.changes, as_of_ns, frame.end, checksum)
    return found


class LogFile:
    """A log that is open for appending."""

    def __init__(self, path: Path, after: int, taken_ns: int) -> None:
        """`after` and `taken_ns` are newest change and time of the snapshot. Raises Corrupt."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            found = log_state(path, after, taken_ns)
            os.ftruncate(self._descriptor, found.length_bytes)
            os.lseek(self._descriptor, found.length_bytes, os.SEEK_SET)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.change = found.change
        self.checksum = found.checksum  # of the newest write; None: the log has none
        self.as_of_ns = found.as_of_ns
        self.length_bytes = found.length_bytes
        self._has_rest = False  # something may follow the last frame, which a failed append has left

    def append(self, writes: Sequence[pb.LogWrite], complete_ns: int | None) -> None:
        """Append writes, durable when this returns. With `complete_ns`, everything that was acknowledged before that
        moment is in the log after them.

        Raises OSError, and Corrupt if the first write is not the next change, or if the log has been removed.
        """
        if not os.fstat(self._descriptor).st_nlink:
            raise Corrupt(f"{self._path} has been removed")
        change = self.change
        pieces = []
        for write in writes:
            if write.first != change + 1 or not write.changes:
                raise Corrupt(f"the store sent change {write.first} after change {change}")
            pieces.append(_frame(write.first, write.changes, 0, write.batch))
            change += write.changes
        if complete_ns is not None:
            pieces.append(_frame(change + 1, 0, complete_ns, b""))
        content = memoryview(b"".join(pieces))
        written = 0
        self._cut_rest()
        self._has_rest = True
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
            os.fdatasync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # else the next append does it first
                self._cut_rest()
            raise
        self._has_rest = False
        self.change = change
        self.checksum = crc32c(writes[-1].batch) if writes else self.checksum
        self.length_bytes += len(content)
        if complete_ns is not None:
            self.as_of_ns = complete_ns

    def _cut_rest(self) -> None:
        if self._has_rest:
            os.ftruncate(self._descriptor, self.length_bytes)
            os.lseek(self._descriptor, self.length_bytes, os.SEEK_SET)
            self._has_rest = False

    def close(self) -> None:
        os.close(self._descriptor)


def _frame(first: int, changes: int, time_ns: int, batch: bytes) -> bytes:
    head = _HEAD.pack(_MAGIC, first, changes, len(batch), time_ns)
    return head + _CRC.pack(crc32c(head + batch)) + batch
