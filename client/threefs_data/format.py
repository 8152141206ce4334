"""The bytes of a dataset. Pure: no I/O here.

A dataset is a directory. `dataset.index` lists the shards. A shard file contains a header, from offset 4096 the samples
one after the other, and a table (`record_table.py`) with the checksums of the samples and, if these differ in length,
the lengths. All integers are little-endian.

Version 1 (`version_1.py`) had one table per shard that was read as a whole.
"""

import hashlib
import struct
from dataclasses import dataclass

from threefs.checksums import Buffer, crc32c
from threefs.errors import Corrupt, InvalidArgument, NotSupported

INDEX_NAME = "dataset.index"
VERSION = 2
VERSIONS = (1, 2)

MAX_SHARDS = 100_000
MAX_SHARD_SAMPLES = 1 << 24
MAX_SHARD_BYTES = 1 << 40
MAX_SAMPLE_BYTES = 1 << 30

#: Samples begin here, so those whose length is a power of two lie within pages of disks and blocks of checksums.
DATA_START = 4096

_INDEX_MAGIC = b"3FSDATA\0"
_SHARD_MAGIC = b"3FSSHARD"
_INDEX_HEADER = struct.Struct("<8sIIQI")  # magic, version, shards, samples, checksum of everything behind the header
_SHARD_ROW_1 = struct.Struct("<QQI")  # samples, bytes before the table, checksum of the table
_SHARD_ROW = struct.Struct(
    "<QQQII"
)  # samples, bytes before the table, sample bytes, has a table, checksum of checksums
_SHARD_HEADER = struct.Struct("<8sII")  # magic, version, number of the shard
_CRC = struct.Struct("<I")

SHARD_HEADER_BYTES = _SHARD_HEADER.size
INDEX_HEADER_BYTES = _INDEX_HEADER.size + _CRC.size
MAX_INDEX_BYTES = INDEX_HEADER_BYTES + MAX_SHARDS * _SHARD_ROW.size


@dataclass(frozen=True, slots=True)
class Shard:
    samples: int
    data_bytes: int  # header and samples; the table begins here
    sample_bytes: int  # of each sample; 0 if they differ in length
    has_lengths: bool  # whether they differ, so that the table has lengths
    crc: int  # of the checksums of all samples; version 1: of the table


@dataclass(frozen=True, slots=True)
class Index:
    version: int
    shards: tuple[Shard, ...]
    fingerprint: str  # of the dataset: another one for other samples, another order or other shards

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)


def sample_crc(sample: Buffer) -> bytes:
    return _CRC.pack(crc32c(sample))


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.records"


def shard_header(number: int, version: int = VERSION) -> bytes:
    """All bytes before the first sample."""
    return _SHARD_HEADER.pack(_SHARD_MAGIC, version, number).ljust(first_sample(version), b"\0")


def first_sample(version: int) -> int:
    """Where the first sample of a shard begins."""
    return SHARD_HEADER_BYTES if version == 1 else DATA_START


def check_shard_header(header: bytes, number: int, version: int, where: str) -> None:
    """Raises Corrupt, NotSupported."""
    magic, found_version, found = _unpack(_SHARD_HEADER, header, where)
    _check_kind(magic, _SHARD_MAGIC, found_version, "a shard of a dataset", where)
    if found_version != version:
        raise Corrupt(f"{where} has format version {found_version}, and the index of its dataset {version}")
    if found != number:
        raise Corrupt(f"{where} is shard {found}, not {number}")


def encode_index(shards: list[Shard]) -> bytes:
    if len(shards) > MAX_SHARDS:
        raise InvalidArgument(f"a dataset of {len(shards)} shards has more than {MAX_SHARDS}; make the shards larger")
    rows = b"".join(
        _SHARD_ROW.pack(shard.samples, shard.data_bytes, shard.sample_bytes, shard.has_lengths, shard.crc)
        for shard in shards
    )
    samples = sum(shard.samples for shard in shards)
    header = _INDEX_HEADER.pack(_INDEX_MAGIC, VERSION, len(shards), samples, crc32c(rows))
    return header + _CRC.pack(crc32c(header)) + rows


def decode_index(content: bytes, where: str) -> Index:
    """Raises Corrupt, NotSupported."""
    magic, version, count, samples, rows_crc = _unpack(_INDEX_HEADER, content, where)
    _check_kind(magic, _INDEX_MAGIC, version, "the index of a dataset", where)
    (header_crc,) = _unpack(_CRC, content[_INDEX_HEADER.size :], where)
    if crc32c(content[: _INDEX_HEADER.size]) != header_crc:
        raise Corrupt(f"{where}: the header does not match its checksum")
    if count > MAX_SHARDS:
        raise Corrupt(f"{where} names {count} shards, more than {MAX_SHARDS}")
    rows = content[INDEX_HEADER_BYTES:]
    row = _SHARD_ROW_1 if version == 1 else _SHARD_ROW
    if len(rows) != count * row.size:
        raise Corrupt(f"{where} has {len(rows)} bytes of rows instead of {count * row.size}")
    if crc32c(rows) != rows_crc:
        raise Corrupt(f"{where}: the rows do not match their checksum")
    shards = tuple(_shard(version, fields) for fields in row.iter_unpack(rows))
    for number, shard in enumerate(shards):
        _check_shard(shard, version, f"{where}: shard {number}")
    if sum(shard.samples for shard in shards) != samples:
        raise Corrupt(f"{where} promises {samples} samples and its shards have another number")
    return Index(version, shards, hashlib.sha256(content).hexdigest()[:32])


def _shard(version: int, fields: tuple[int, ...]) -> Shard:
    if version == 1:
        samples, data_bytes, crc = fields
        return Shard(samples, data_bytes, 0, True, crc)
    samples, data_bytes, sample_bytes, has_lengths, crc = fields
    return Shard(samples, data_bytes, sample_bytes, bool(has_lengths), crc)


def _check_shard(shard: Shard, version: int, where: str) -> None:
    if shard.samples > MAX_SHARD_SAMPLES:
        raise Corrupt(f"{where} has {shard.samples} samples, more than {MAX_SHARD_SAMPLES}")
    start = first_sample(version)
    if not start <= shard.data_bytes <= MAX_SHARD_BYTES:
        raise Corrupt(f"{where} has {shard.data_bytes} bytes, not {start} to {MAX_SHARD_BYTES}")
    if shard.sample_bytes > MAX_SAMPLE_BYTES:
        raise Corrupt(f"{where} has samples of {shard.sample_bytes} bytes, more than {MAX_SAMPLE_BYTES}")
    found = shard.data_bytes - start
    if not shard.has_lengths and found != shard.samples * shard.sample_bytes:
        raise Corrupt(f"{where} has {found} bytes, not {shard.samples} samples of {shard.sample_bytes} bytes")


def _unpack(layout: struct.Struct, content: bytes, where: str) -> tuple[int, ...]:
    if len(content) < layout.size:
        raise Corrupt(f"{where} is cut short")
    return layout.unpack_from(content)


def _check_kind(magic: object, expected: bytes, version: int, kind: str, where: str) -> None:
    if magic != expected:
        raise Corrupt(f"{where} is not {kind}")
    if version not in VERSIONS:
        raise NotSupported(
            f"{where} has format version {version}; this program reads versions up to {VERSION}; use a newer one"
        )
