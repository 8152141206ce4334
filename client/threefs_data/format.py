"""The bytes of a dataset. Pure: no I/O here.

A dataset is a directory. `dataset.index` lists the shards: number of samples, number of bytes, checksum of the table. A
shard file contains a header, the samples one after the other, and a table with the start and the CRC32C of each sample.
All integers are little-endian.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

INDEX_NAME = "dataset.index"
VERSION = 1

MAX_SHARDS = 100_000
MAX_SHARD_SAMPLES = 1 << 24
MAX_SHARD_BYTES = 1 << 40
MAX_SAMPLE_BYTES = 1 << 30

_INDEX_MAGIC = b"3FSDATA\0"
_SHARD_MAGIC = b"3FSSHARD"
_INDEX_HEADER = struct.Struct("<8sIIQI")  # magic, version, shards, samples, checksum of the rows
_SHARD_ROW = struct.Struct("<QQI")  # samples, bytes before the table, checksum of the table
_SHARD_HEADER = struct.Struct("<8sII")  # magic, version, number of the shard
_CRC = struct.Struct("<I")

SHARD_HEADER_BYTES = _SHARD_HEADER.size
INDEX_HEADER_BYTES = _INDEX_HEADER.size + _CRC.size
MAX_INDEX_BYTES = INDEX_HEADER_BYTES + MAX_SHARDS * _SHARD_ROW.size


@dataclass(frozen=True, slots=True)
class Shard:
    samples: int
    data_bytes: int  # header and samples; the table begins here
    table_crc: int

    @property
    def table_bytes(self) -> int:
        return 8 * (self.samples + 1) + 4 * self.samples


@dataclass(frozen=True, slots=True)
class Table:
    """Sample i of a shard takes the bytes from starts[i] to starts[i + 1] of its file."""

    starts: NDArray[np.uint64]
    crcs: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.crcs.nbytes


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.records"


def shard_header(number: int) -> bytes:
    return _SHARD_HEADER.pack(_SHARD_MAGIC, VERSION, number)


def check_shard_header(header: bytes, number: int, where: str) -> None:
    """Raises Corrupt, NotSupported."""
    magic, version, found = _unpack(_SHARD_HEADER, header, where)
    _check_kind(magic, _SHARD_MAGIC, version, "a shard of a dataset", where)
    if found != number:
        raise Corrupt(f"{where} is shard {found}, not {number}")


def encode_table(starts: list[int], crcs: list[int]) -> bytes:
    return np.array(starts, "<u8").tobytes() + np.array(crcs, "<u4").tobytes()


def decode_table(content: bytes | memoryview, shard: Shard, where: str) -> Table:
    """Raises Corrupt."""
    if len(content) != shard.table_bytes:
        raise Corrupt(f"{where}: the table has {len(content)} of {shard.table_bytes} bytes")
    if crc32c(content) != shard.table_crc:
        raise Corrupt(f"{where}: the table does not match its checksum")
    starts = np.frombuffer(content, "<u8", shard.samples + 1)
    lengths = np.diff(starts.astype(np.int64))
    if starts[0] != SHARD_HEADER_BYTES or starts[-1] != shard.data_bytes or (lengths < 0).any():
        raise Corrupt(f"{where}: the samples of the table do not follow one another")
    if shard.samples and int(lengths.max()) > MAX_SAMPLE_BYTES:
        raise Corrupt(f"{where}: a sample has {lengths.max()} bytes, more than {MAX_SAMPLE_BYTES}")
    return Table(starts, np.frombuffer(content, "<u4", shard.samples, 8 * (shard.samples + 1)))


def encode_index(shards: list[Shard]) -> bytes:
    if len(shards) > MAX_SHARDS:
        raise InvalidArgument(f"a dataset of {len(shards)} shards has more than {MAX_SHARDS}; make the shards larger")
    rows = b"".join(_SHARD_ROW.pack(shard.samples, shard.data_bytes, shard.table_crc) for shard in shards)
    samples = sum(shard.samples for shard in shards)
    header = _INDEX_HEADER.pack(_INDEX_MAGIC, VERSION, len(shards), samples, crc32c(rows))
    return header + _CRC.pack(crc32c(header)) + rows


def decode_index(content: bytes, where: str) -> list[Shard]:
    """Raises Corrupt, NotSupported."""
    magic, version, count, samples, rows_crc = _unpack(_INDEX_HEADER, content, where)
    _check_kind(magic, _INDEX_MAGIC, version, "the index of a dataset", where)
    (header_crc,) = _unpack(_CRC, content[_INDEX_HEADER.size :], where)
    if crc32c(content[: _INDEX_HEADER.size]) != header_crc:
        raise Corrupt(f"{where}: the header does not match its checksum")
    if count > MAX_SHARDS:
        raise Corrupt(f"{where} names {count} shards, more than {MAX_SHARDS}")
    rows = content[INDEX_HEADER_BYTES:]
    if len(rows) != count * _SHARD_ROW.size:
        raise Corrupt(f"{where} has {len(rows)} bytes of rows instead of {count * _SHARD_ROW.size}")
    if crc32c(rows) != rows_crc:
        raise Corrupt(f"{where}: the rows do not match their checksum")
    shards = [Shard(*row) for row in _SHARD_ROW.iter_unpack(rows)]
    for number, shard in enumerate(shards):
        _check_shard(shard, f"{where}: shard {number}")
    if sum(shard.samples for shard in shards) != samples:
        raise Corrupt(f"{where} promises {samples} samples and its shards have another number")
    return shards


def _check_shard(shard: Shard, where: str) -> None:
    if shard.samples > MAX_SHARD_SAMPLES:
        raise Corrupt(f"{where} has {shard.samples} samples, more than {MAX_SHARD_SAMPLES}")
    if not SHARD_HEADER_BYTES <= shard.data_bytes <= MAX_SHARD_BYTES:
        raise Corrupt(f"{where} has {shard.data_bytes} bytes, not {SHARD_HEADER_BYTES} to {MAX_SHARD_BYTES}")


def _unpack(layout: struct.Struct, content: bytes, where: str) -> tuple[int, ...]:
    if len(content) < layout.size:
        raise Corrupt(f"{where} is cut short")
    return layout.unpack_from(content)


def _check_kind(magic: object, expected: bytes, version: int, kind: str, where: str) -> None:
    if magic != expected:
        raise Corrupt(f"{where} is not {kind}")
    if version != VERSION:
        raise NotSupported(f"{where} has format version {version}; this program reads version {VERSION}")
