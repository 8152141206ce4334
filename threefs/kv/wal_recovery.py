"""The torn end of a write-ahead log of RocksDB.

A power cut can leave the records that were not flushed yet half written: the log has its full length, some of its
pages are zeros, later ones may be right. RocksDB takes a log that is too short, but calls this a corruption and does
not open.

RocksDB also steps silently over zeros that go on to the end of a block, and takes in what lies behind: a change without
the one before it. So a log is looked through before RocksDB is shown it (`odd_header`).

Such an end may be cut off, damage to what had been flushed must not. To tell them apart, a mark follows each flush: the
sequence number up to which everything was flushed. If a mark behind the damage covers what was damaged, it stays an
error. (Nobody waits for the mark of the last flush to be durable: a power cut may take it.)

A log is a row of blocks of 32 KiB. A record is split into fragments that do not cross a block boundary. Each fragment
has a header: masked CRC32C of kind and content, length of the content, kind. The last bytes of a block are zeros if no
header fits. A record begins with the sequence number of its first change and the number of its changes.

When a log is full RocksDB begins the next one without a sync of the old one. So a power cut around that moment may tear
the end of the old log and leave the next one whole. Each torn end is cut off then, and logs behind a gap are put aside,
which RocksDB would take in as well. (A gap behind a log that is in sorted files already is none.)
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from threefs.checksums import crc32c

#: The key of the mark. No table shows it or lets it be written.
MARK_KEY = b"\xff" * 16 + b"threefs flushed"

#: The directory of logs that the table needs no more.
KEPT = "archive"

BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_NOTHING, _WHOLE, _FIRST, _MIDDLE, _LAST = range(5)  # kinds of fragments; nothing is space that was never written
_CONTINUED, _UNFINISHED = (_MIDDLE, _LAST), (_FIRST, _MIDDLE)
_RECORD = struct.Struct("<QI")
_MARK = struct.Struct("<Q")
_MARK_PREFIX = MARK_KEY + bytes([_MARK.size])  # a key, the length of its value, the value


def encode_mark(sequence: int) -> bytes:
    return _MARK.pack(sequence)


def unreadable(directory: Path) -> bool:
    """Whether any log of the closed store in `directory` has a gap, or a header that RocksDB must not be shown."""
    return any(odd_header(log.read_bytes()) is not None for log in _logs(directory))


def odd_header(content: bytes) -> int | None:
    """Where the first header lies that cannot be one there. Checksums are hardly looked at, so this is fast.

    RocksDB steps over zeros up to the end of a block and goes on with the next one. So pages that a power cut has taken
    would leave a later change without an earlier one. Zeros are room only if nothing lies behind them, and the numbers
    of the changes must follow each other.

    RocksDB takes a fragment that goes on behind the end of the log for a torn one, and drops it with all that lies in
    its place. A damaged length looks the same. So if what was flushed lies there, the header is odd.
    """
    used = len(content.rstrip(b"\0"))
    expected = 0  # the number of the next record's first change; 0: not known
    inside = False  # a record that has begun and not ended
    for block in range(0, used, BLOCK_BYTES):
        place, stop = block, min(block + BLOCK_BYTES, len(content))
        while place + _HEADER.size <= stop:
            _, length, kind = _HEADER.unpack_from(content, place)
            end = place + _HEADER.size + length
            if kind == _NOTHING and used <= place:
                return None  # space that was reserved
            if not _WHOLE <= kind <= _LAST or end > block + BLOCK_BYTES or inside != (kind in _CONTINUED):
                return place
            if end > len(content):
                return place if torn_at(content) is None else None  # it says None if that had been flushed
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
    """Those that are in use and those that are kept behind them, from the oldest to the newest."""
    kept = [*directory.glob("[0-9]*.log"), *(directory / KEPT).glob("[0-9]*.log")]
    return sorted({int(path.stem): path for path in kept}.values(), key=lambda path: int(path.stem))


def _logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.log"), key=lambda path: int(path.stem))


def rotated(directory: Path) -> bool:
    """Whether the closed store in `directory` has more than one log."""
    return len(_logs(directory)) > 1


def gaps(directory: Path) -> list[tuple[Path, int]]:
    """The logs that do not go on where the one before ends, and their first changes. Torn ends must be cut before."""
    found = []
    before = 0
    for log in _logs(directory):
        first, last = _changes(log.read_bytes())
        if first and before and first != before + 1:
            found.append((log, first))
        before = last or before
    return found


def put_aside(directory: Path, first: Path) -> None:
    """Take this log and all later ones out of the closed store. The last goes first: there is never a gap more."""
    for log in reversed(_logs(directory)):
        if int(log.stem) >= int(first.stem):
            log.rename(log.with_suffix(".torn"))
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _changes(content: bytes) -> tuple[int, int]:
    """The numbers of the first and the last change in a log up to its first damage; zeros if it has none."""
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
    """The highest mark in all logs: the change up to which everything had been flushed, as far as they tell."""
    return max((_flushed_behind(memoryview(log.read_bytes()), 0) for log in _logs(directory)), default=0)


def cut_torn_tails(directory: Path) -> bool:
    """Cut the logs of the closed store in `directory` whose ends are torn. Copies of the ends are kept beside them."""
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
    """Where the first damaged or missing record begins, if nothing behind it tells that it had been flushed; else None.

    A record is missing where the numbers of the changes do not follow each other.
    """
    view = memoryview(content)
    record = place = before = 0  # `before` is the number of the last change in the records before this one
    head, complete = b"", True  # of the record that begins at `record`
    while (place := _skip_padding(place)) < len(view):
        end = _end_of_fragment(view, place)
        if end is None and complete and not content[place:].strip(b"\0"):
            return None  # space that was reserved
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
    """The highest mark in the valid fragments behind the place of the damage."""
    content = b"".join(view[begin + _HEADER.size : end] for begin, end in _fragments_after(view, damage))
    highest = place = 0
    while (place := content.find(_MARK_PREFIX, place) + len(_MARK_PREFIX)) >= len(_MARK_PREFIX):
        if place + _MARK.size <= len(content):
            highest = max(highest, *_MARK.unpack_from(content, place))
    return highest


def _fragments_after(view: memoryview, damage: int) -> Iterator[tuple[int, int]]:
    """Valid fragments, wherever they begin."""
    stop = len(bytes(view).rstrip(b"\0"))  # there may be much room behind it
    place = _claimed_end(view, damage)
    if _end_of_fragment(view, _skip_padding(place)) is None:
        place = damage + 1
    while (place := _skip_padding(place)) < stop:
        end = _end_of_fragment(view, place)
        if end is None:
            place += 1
        else:
            yield place, end
            place = end


def _claimed_end(view: memoryview, place: int) -> int:
    """Where a damaged fragment ends if its length is not what is damaged: usually the next one begins there."""
    begin = place + _HEADER.size
    return begin + int(_HEADER.unpack_from(view, place)[1]) if begin <= len(view) else len(view)


def records(view: memoryview, place: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Whole records from `place` on, where one begins: (number of the first change, changes, batch, where it ends)."""
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
    """Where the fragment ends that begins at `place`, if there is a valid one."""
    begin = place + _HEADER.size
    if begin > len(view):
        return None
    masked, length, kind = _HEADER.unpack_from(view, place)
    end = begin + length
    if kind == _NOTHING or end > len(view) or end > place - place % BLOCK_BYTES + BLOCK_BYTES:
        return None
    return end if masked == _mask(crc32c(view[begin - 1 : end])) else None


def _mask(crc: int) -> int:
    """As RocksDB stores checksums, because a checksum of data with checksums in it is weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
