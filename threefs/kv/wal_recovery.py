"""The torn end of a write-ahead log of RocksDB.

A power cut can leave records that were not flushed half written: the log has its full length, some of its pages are
zeros, and later pages may be right. RocksDB accepts a log that is too short, but calls this state a corruption, and
does not open. It also skips zeros up to the end of a block in silence, and replays the records behind them: a change
without the one before it. So each log is checked before RocksDB opens it (`odd_header`).

A torn end may be cut off, but damage to records that had been flushed must stay an error. Marks tell them apart. Each
flush is followed by a mark, which holds the sequence number up to which everything was flushed. If a mark behind the
damage covers a damaged record, that record had been flushed. (No flush waits until its mark is durable, so a power cut
may remove the last one.)

A log is a sequence of blocks of 32 KiB. A record is split into fragments that do not cross a block boundary. Each
fragment has a header: masked CRC32C of kind and content, length of the content, kind. The last bytes of a block are
zeros if no header fits. A record begins with the sequence number of its first change and the number of its changes.

When a log is full, RocksDB begins the next one without syncing the old one. So a power cut around that moment may tear
the end of the old log and leave the next one complete. Then each torn end is cut off, and logs behind a gap are moved
away, because RocksDB would replay them as well. (A gap is harmless if sorted files have the missing changes.)
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from threefs.checksums import crc32c

#: The key of the mark. No table shows it, and no caller can write it.
MARK_KEY = b"\xff" * 16 + b"threefs flushed"

#: The directory of logs that the table does not need any more.
KEPT = "archive"

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_NOTHING, _WHOLE, _FIRST, _MIDDLE, _LAST = range(5)  # kinds of fragments; _NOTHING is room that was never written
_CONTINUED, _UNFINISHED = (_MIDDLE, _LAST), (_FIRST, _MIDDLE)
_RECORD = struct.Struct("<QI")
_MARK = struct.Struct("<Q")
_MARK_PREFIX = MARK_KEY + bytes([_MARK.size])  # a key, the length of its value, the value


def encode_mark(sequence: int) -> bytes:
    return _MARK.pack(sequence)


def unreadable(directory: Path) -> bool:
    """Whether any log of the closed store in `directory` has a gap, or a header that RocksDB must not read."""
    return any(odd_header(log.read_bytes()) is not None for log in _logs(directory))


def odd_header(content: bytes) -> int | None:
    """The offset of the first header that is impossible there. It checks hardly any checksum, so it is fast.

    RocksDB skips zeros up to the end of a block and continues with the next block. So lost pages would leave a later
    change without an earlier one. Zeros are unused room only if nothing follows them, and the numbers of the changes
    must be consecutive.

    RocksDB takes a fragment that reaches beyond the end of the log for a torn one, and drops everything from there on.
    A damaged length looks the same. So if flushed records follow, the header is odd.
    """
    used = len(content.rstrip(b"\0"))
    expected = 0  # the number of the next record's first change; 0: not known
    inside = False  # whether a record has begun and not ended
    for block in range(0, used, BLOCK_BYTES):
        place, stop = block, min(block + BLOCK_BYTES, len(content))
        while place + _HEADER.size <= stop:
            _, length, kind = _HEADER.unpack_from(content, place)
            end = place + _HEADER.size + length
            if kind == _NOTHING and used <= place:
                return None  # room that was never used
            if not _WHOLE <= kind <= _LAST or end > block + BLOCK_BYTES or inside != (kind in _CONTINUED):
                return place
            if end > len(content):
                return place if torn_at(content) is None else None  # None: flushed records follow
            inside = kind in _UNFINISHED
            if kind not in _CONTINUED:
                head_is_whole = length >= _RECORD.size
                first, count = _RECORD.unpack_from(content, place + _HEADER.size) if head_is_whole else (0, 0)
                if expected and first and first != expected:
                    return place
                expected = first + count
            place = end
    return None


def logs(directory: Path) -> list[Path]:
    """The logs in use and the older ones that are kept, from the oldest to the newest."""
    kept = [*directory.glob("[0-9]*.log"), *(directory / KEPT).glob("[0-9]*.log")]
    return sorted({int(path.stem): path for path in kept}.values(), key=lambda path: int(path.stem))


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.log"), key=lambda path: int(path.stem))


def rotated(directory: Path) -> bool:
    """Whether the closed store in `directory` has more than one log."""
    return len(_logs(directory)) > 1


def gaps(directory: Path) -> list[tuple[Path, int]]:
    """The logs that do not continue the one before, each with its first change. Torn ends must be cut before."""
    found = []
    before = 0
    for log in _logs(directory):
        first, last = _changes(log.read_bytes())
        if first and before and first != before + 1:
            found.append((log, first))
        before = last or before
    return found


def put_aside(directory: Path, first: Path) -> None:
    """Rename this log and all later ones, so that the closed store has them no more. The last is renamed first, so no
    other gap appears."""
    for log in reversed(_logs(directory)):
        if int(log.stem) >= int(first.stem):
            log.rename(log.with_suffix(".torn"))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _changes(content: bytes) -> tuple[int, int]:
    """The numbers of the first and the last change in a log up to its first damage; zeros if it has no change."""
    view = memoryview(content)
    first = last = place = 0
    head = b""
    while place < len(view) and (end := _end_of_fragment(view, place)) is not None:
        kind = view[place + _HEADER.size - 1]
        if kind in (_WHOLE, _FIRST):
            head = b""
        head += bytes(view[place + _HEADER.size : end][: _RECORD.size - len(head)])
        if kind in (_WHOLE, _LAST):
            first, last = first or _RECORD.unpack(head)[0], _last_change(head)
        place = _skip_padding(end)
    return first, last


def flushed(directory: Path) -> int:
    """The highest mark in all logs: everything up to this change had been flushed, and perhaps more."""
    return max((_highest_mark(memoryview(log.read_bytes()), 0) for log in _logs(directory)), default=0)


def cut_torn_tails(directory: Path) -> bool:
    """Cut off the torn ends of the logs of the closed store in `directory`, and keep copies of the ends beside them.

    Returns whether a log was cut.
    """
    cuts = [_cut_torn_tail(path) for path in _logs(directory)]
    return any(cuts)


def _cut_torn_tail(path: Path) -> bool:
    content = path.read_bytes()
    cut = torn_at(content)
    if cut is None:
        return False
    path.with_suffix(".torn").write_bytes(content[cut:])
    with path.open("r+b") as log:
        log.truncate(cut)
        os.fsync(log.fileno())
    return True


def torn_at(content: bytes) -> int | None:
    """The offset of the first damaged or missing record, if no mark behind it says that it had been flushed.

    None: no record is damaged, or a flushed one is. A record is missing where the numbers of the changes are not
    consecutive.
    """
    view = memoryview(content)
    record = place = before = 0  # `before` is the number of the last change in the records before this one
    head, complete = b"", True  # of the record that begins at `record`
    while (place := _skip_padding(place)) < len(view):
        end = _end_of_fragment(view, place)
        if end is None and complete and not content[place:].strip(b"\0"):
            return None  # room that was never used
        if complete:
            before = _last_change(head)
            record, head = place, b""
        kind = view[place + _HEADER.size - 1] if end is not None else _NOTHING
        if end is None or complete == (kind in _CONTINUED):
            return None if _flushed_behind(view, place) > before else record
        head += bytes(view[place + _HEADER.size : end][: _RECORD.size - len(head)])
        if before and len(head) == _RECORD.size and _RECORD.unpack(head)[0] != before + 1:
            return None if _flushed_behind(view, record) > before else record
        complete = kind not in _UNFINISHED
        place = end
    return None


def _last_change(head: bytes) -> int:
    if len(head) < _RECORD.size:
        return 0  # before the first record
    first, count = _RECORD.unpack(head)
    return int(first + count - 1)


def _flushed_behind(view: memoryview, damage: int) -> int:
    """The highest mark in the valid fragments behind the damage."""
    place = _claimed_end(view, damage)
    return _highest_mark(view, damage + 1 if _end_of_fragment(view, _skip_padding(place)) is None else place)


def _highest_mark(view: memoryview, place: int) -> int:
    """The highest mark in the valid fragments from `place` on."""
    content = b"".join(view[begin + _HEADER.size : end] for begin, end in _fragments(view, place))
    highest = place = 0
    while (place := content.find(_MARK_PREFIX, place) + len(_MARK_PREFIX)) >= len(_MARK_PREFIX):
        if place + _MARK.size <= len(content):
            highest = max(highest, *_MARK.unpack_from(content, place))
    return highest


def _fragments(view: memoryview, place: int) -> Iterator[tuple[int, int]]:
    """The valid fragments from `place` on, wherever they begin: (begin, end)."""
    stop = len(bytes(view).rstrip(b"\0"))  # much unused room may follow
    while (place := _skip_padding(place)) < stop:
        end = _end_of_fragment(view, place)
        if end is None:
            place += 1
        else:
            yield place, end
            place = end


def _claimed_end(view: memoryview, place: int) -> int:
    """The end of a damaged fragment according to its length, where usually the next fragment begins."""
    begin = place + _HEADER.size
    return begin + int(_HEADER.unpack_from(view, place)[1]) if begin <= len(view) else len(view)


def records(view: memoryview, place: int) -> Iterator[tuple[int, int, bytes, int]]:
    """The complete records from `place` on, where a record begins: (number of the first change, changes, batch,
    end)."""
    parts: list[memoryview] = []
    while (place := _skip_padding(place)) < len(view) and (end := _end_of_fragment(view, place)) is not None:
        kind = view[place + _HEADER.size - 1]
        if kind not in _CONTINUED:
            parts = []
        parts.append(view[place + _HEADER.size : end])
        place = end
        if kind not in _UNFINISHED:
            content = b"".join(parts)
            first, count = _RECORD.unpack_from(content)
            yield first, count, content[_RECORD.size :], place


def _skip_padding(place: int) -> int:
    space = BLOCK_BYTES - place % BLOCK_BYTES
    return place + space if space < _HEADER.size else place


def _end_of_fragment(view: memoryview, place: int) -> int | None:
    """The end of the fragment at `place`; None if no valid fragment begins there."""
    begin = place + _HEADER.size
    if begin > len(view):
        return None
    masked, length, kind = _HEADER.unpack_from(view, place)
    end = begin + length
    if kind == _NOTHING or end > len(view) or end > place - place % BLOCK_BYTES + BLOCK_BYTES:
        return None
    return end if masked == _mask(crc32c(view[begin - 1 : end])) else None


def _mask(crc: int) -> int:
    """A checksum in the form that RocksDB stores, because a checksum of data that contains checksums is weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
