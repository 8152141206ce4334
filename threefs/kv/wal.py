"""The torn end of a write-ahead log of RocksDB.

A power cut can leave the last records of a log half written: the file has its full length, some of its pages are zeros.
RocksDB takes a log that is too short, but calls such a record a corruption and does not open. It is safe to cut it off
if nothing valid follows: whatever was flushed stands before it.

A log is a row of blocks of 32 KiB. A record is split into fragments that do not cross a block boundary. Each fragment
has a header: masked CRC32C of kind and content, length of the content, kind. The last bytes of a block are zeros if no
header fits.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from threefs.checksums import crc32c

_BLOCK_BYTES = 32 << 10
_HEADER = struct.Struct("<IHB")
_NOTHING, _WHOLE, _FIRST, _MIDDLE, _LAST = range(5)  # kinds of fragments; nothing is space that was never written


def cut_torn_tail(directory: Path) -> bool:
    """Cut the newest log of the closed store in `directory` if its end is torn. A copy of the end is kept beside it."""
    logs = sorted(directory.glob("[0-9]*.log"), key=lambda path: int(path.stem))
    if not logs:
        return False
    content = logs[-1].read_bytes()
    cut = torn_at(content)
    if cut is None:
        return False
    logs[-1].with_suffix(".torn").write_bytes(content[cut:])
    with logs[-1].open("r+b") as log:
        log.truncate(cut)
        os.fsync(log.fileno())
    return True


def torn_at(content: bytes) -> int | None:
    """Where the first record begins that is damaged, if no valid fragment follows it; else None."""
    view = memoryview(content)
    record = place = 0
    while place < len(view):
        space = _BLOCK_BYTES - place % _BLOCK_BYTES
        if space < _HEADER.size:
            place += space
            continue
        end = _end_of_fragment(view, place)
        if end is None:
            if _is_unwritten(view, place):
                return None
            begins = _kind(view, place) not in (_MIDDLE, _LAST)
            damaged = place if begins else record
            return None if any(_end_of_fragment(view, later) for later in _places_after(view, place)) else damaged
        if _kind(view, place) in (_WHOLE, _FIRST):
            record = place
        place = end
    return None


def _end_of_fragment(view: memoryview, place: int) -> int | None:
    """Where the fragment ends that begins at `place`, if there is a valid one."""
    begin = place + _HEADER.size
    if begin > len(view):
        return None
    masked, length, kind = _HEADER.unpack_from(view, place)
    end = begin + length
    if kind == _NOTHING or end > len(view) or end > place - place % _BLOCK_BYTES + _BLOCK_BYTES:
        return None
    return end if masked == _mask(crc32c(view[begin - 1 : end])) else None


def _mask(crc: int) -> int:
    """As RocksDB stores checksums, because a checksum of data with checksums in it is weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _kind(view: memoryview, place: int) -> int:
    return view[place + _HEADER.size - 1] if place + _HEADER.size <= len(view) else _NOTHING


def _is_unwritten(view: memoryview, place: int) -> bool:
    return not any(view[place:])


def _places_after(view: memoryview, place: int) -> Iterator[int]:
    """Where a later fragment may begin: anywhere in this block, and at the beginning of each later one."""
    end_of_block = place - place % _BLOCK_BYTES + _BLOCK_BYTES
    yield from range(place + 1, min(end_of_block, len(view)))
    yield from range(end_of_block, len(view), _BLOCK_BYTES)
