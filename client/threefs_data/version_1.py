"""Tables of version 1 of the format: starts and checksums of all samples of a shard. They are read, never written.
Pure: no I/O here."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import Buffer, crc32c
from threefs.errors import Corrupt
from threefs_data.format import MAX_SAMPLE_BYTES, SHARD_HEADER_BYTES, Shard


@dataclass(frozen=True, slots=True)
class Table:
    """Sample i of a shard takes the bytes from starts[i] to starts[i + 1] of its file."""

    starts: NDArray[np.uint64]
    crcs: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.crcs.nbytes


def table_bytes(shard: Shard) -> int:
    return 8 * (shard.samples + 1) + 4 * shard.samples


def decode_table(content: Buffer, shard: Shard, where: str) -> Table:
    """Raises Corrupt."""
    if len(content) != table_bytes(shard):
        raise Corrupt(f"{where}: the table has {len(content)} of {table_bytes(shard)} bytes")
    if crc32c(content) != shard.crc:
        raise Corrupt(f"{where}: the table does not match its checksum")
    starts = np.frombuffer(content, "<u8", shard.samples + 1)
    lengths = np.diff(starts.astype(np.int64))
    if starts[0] != SHARD_HEADER_BYTES or starts[-1] != shard.data_bytes or (lengths < 0).any():
        raise Corrupt(f"{where}: the samples of the table do not follow one another")
    if shard.samples and int(lengths.max()) > MAX_SAMPLE_BYTES:
        raise Corrupt(f"{where}: a sample has {lengths.max()} bytes, more than {MAX_SAMPLE_BYTES}")
    return Table(starts, np.frombuffer(content, "<u4", shard.samples, 8 * (shard.samples + 1)))
