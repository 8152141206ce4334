"""Writes datasets of version 1 of the format, which programs only read."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threefs_data.format import INDEX_NAME, shard_header, shard_name

from threefs.checksums import crc32c


def encode_index(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Of shards with (samples, bytes before the table, checksum of the table)."""
    content = b"".join(struct.pack("<QQI", *row) for row in rows)
    header = struct.pack("<8sIIQI", b"3FSDATA\0", 1, len(rows), sum(row[0] for row in rows), crc32c(content))
    return header + struct.pack("<I", crc32c(header)) + content


def encode_table(starts: Sequence[int], crcs: Sequence[int]) -> bytes:
    return np.array(starts, "<u8").tobytes() + np.array(crcs, "<u4").tobytes()


def write(directory: Path, samples: Sequence[bytes], shard_samples: int) -> None:
    directory.mkdir()
    rows = []
    for number, first in enumerate(range(0, len(samples), shard_samples)):
        part = samples[first : first + shard_samples]
        starts = np.cumsum([16, *map(len, part)]).tolist()
        table = encode_table(starts, [crc32c(sample) for sample in part])
        (directory / shard_name(number)).write_bytes(shard_header(number, 1) + b"".join(part) + table)
        rows.append((len(part), starts[-1], crc32c(table)))
    (directory / INDEX_NAME).write_bytes(encode_index(rows))
