"""Blocks that say what they are: file, offset, generation and CRC32C. A block that says something else is an error.

Every sector of a block begins with a mark of its generation as well, so that the halves of two generations never make
a whole block.
"""

import struct
from collections.abc import Iterator

import numpy as np

from threefs.checksums import crc32c, crc32c_behind
from threefs.errors import Corrupt
from threefs_bench.load.workload import Row

_MAGIC = b"3fsV"
_HEADER = struct.Struct("<4sIQQI")  # magic, length, offset, generation, file
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_WORDS = 64  # of 8 bytes, from one mark to the next
_MIXER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_COUNTER_BITS = 32
_MOST_GENERATIONS = 0xFFFFFFFF
_SCANNED = 1 << 16


def stamp(view: memoryview, file: int, offset: int, generation: int) -> None:
    """Write header and marks over the beginning of a block and of its sectors."""
    marks = np.frombuffer(view, "<u8", len(view) // 8)
    marks[HEADER_BYTES // 8 :: _WORDS] = (generation * _MIXER ^ offset) & _MASK
    header = _HEADER.pack(_MAGIC, len(view), offset, generation, file)
    view[: _HEADER.size] = header
    view[_HEADER.size : HEADER_BYTES] = _CHECKSUM.pack(_checksum(view, header))


def _checksum(view: memoryview, header: bytes) -> int:
    return crc32c_behind(crc32c(view[HEADER_BYTES:]), header)


def check(view: memoryview, path: str, row: Row, generation: int | None = None) -> None:
    """Raises Corrupt, which names the place and what is wrong there. Without a generation any one is right."""
    file, offset, length = row
    where = f"{path}: block of {length} bytes at offset {offset}"
    if len(view) < length:
        raise Corrupt(f"{where}: only {len(view)} bytes came")
    header = bytes(view[: _HEADER.size])
    magic, found_length, found_offset, found_generation, found_file = _HEADER.unpack(header)
    if magic != _MAGIC:
        what = "only zeros" if not any(view) else "no header of a verified block"
        raise Corrupt(f"{where}: it has {what}; was it written by a job with verify=crc32c and this block size?")
    if (found_file, found_offset, found_length) != (file, offset, length):
        raise Corrupt(
            f"{where}: it is the block of {found_length} bytes at offset {found_offset} of file {found_file}, and "
            f"should be that of file {file}"
        )
    (checksum,) = _CHECKSUM.unpack(view[_HEADER.size : HEADER_BYTES])
    found = _checksum(view, header)
    if checksum != found:
        raise Corrupt(f"{where}: its CRC32C is {found:08x}, and its header says {checksum:08x}")
    if generation is not None and found_generation != generation:
        raise Corrupt(f"{where}: it is of generation {found_generation:x}, and {generation:x} was written last")


class Ledger:
    """The last generation of each block that this process has written.

    No two operations on a block are in flight at once, so it is certain what a read must find.
    """

    def __init__(self, blocks_per_file: int, files: int, block_bytes: int, base: int) -> None:
        """`base` tells this run from others: it is the upper half of the generations."""
        self._in_file = blocks_per_file
        self._block_bytes = block_bytes
        self._base = base << _COUNTER_BITS
        self._last = np.zeros(blocks_per_file * files, np.uint32)
        self._in_flight: set[int] = set()
        self._counter = 0

    def take(self, rows: list[Row]) -> list[Row]:
        """Those blocks on which nothing is in flight; now something is, until `give_back`."""
        taken = []
        for row in rows:
            index = self._index(row)
            if index not in self._in_flight:
                self._in_flight.add(index)
                taken.append(row)
        return taken

    def give_back(self, rows: list[Row]) -> None:
        self._in_flight.difference_update(map(self._index, rows))

    def next_generation(self, row: Row) -> int:
        """For a write that begins. If it fails nobody knows the content, but then the job ends."""
        self._counter += 1
        assert self._counter < _MOST_GENERATIONS, "a process writes fewer blocks"
        self._last[self._index(row)] = self._counter
        return self._base | self._counter

    def expected(self, row: Row) -> int | None:
        """None: this process has not written the block."""
        counter = int(self._last[self._index(row)])
        return self._base | counter if counter else None

    def written(self) -> Iterator[Row]:
        """All blocks that were written, in their order."""
        for begin in range(0, len(self._last), _SCANNED):
            for index in np.flatnonzero(self._last[begin : begin + _SCANNED]).tolist():
                file, block = divmod(begin + index, self._in_file)
                yield file, block * self._block_bytes, self._block_bytes

    def _index(self, row: Row) -> int:
        return row[0] * self._in_file + row[1] // self._block_bytes
