"""What reading samples at random costs, in bytes that are really read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_data import Dataset, record_table
from threefs_data.format import DATA_START, INDEX_NAME, Shard, encode_index, sample_crc, shard_header, shard_name

from tests.harness.local_files import LocalFiles

TERABYTE = 1 << 40
SAMPLE_BYTES = 4096
SHARD_BYTES = 256 << 20
READ_SAMPLES = 20_000
BATCH = 256
NUMBERS = {f"/ds/{shard_name(number)}": number for number in range(TERABYTE // SHARD_BYTES)}


class SyntheticFiles(LocalFiles):
    """A dataset of a terabyte, all shards of which lie in one sparse file. It counts the bytes that are read.

    Samples have 4096 bytes, or from 2048 to 6143 bytes where there are tables. All are zeros.
    """

    has_lengths = False
    bytes_read = 0

    def lengths(self) -> list[int]:
        count = (SHARD_BYTES - DATA_START) // SAMPLE_BYTES
        return [SAMPLE_BYTES + (index * 1009 % 4096 - 2048 if self.has_lengths else 0) for index in range(count)]

    def prepare(self) -> int:
        """Write the index, and one shard in the place of all others; the number of samples."""
        (Path(self.root) / "ds").mkdir()
        lengths = self.lengths()
        with (Path(self.root) / "ds" / "shard").open("wb") as shard:
            end = shard.seek(DATA_START + sum(lengths))
            crcs = b"".join(sample_crc(bytes(length)) for length in lengths)
            shard.write(record_table.encode(crcs, lengths, self.has_lengths))
        shards = TERABYTE // SHARD_BYTES
        row = Shard(len(lengths), end, 0 if self.has_lengths else SAMPLE_BYTES, self.has_lengths, 0)
        (Path(self.root) / "ds" / INDEX_NAME).write_bytes(encode_index([row] * shards))
        return shards * len(lengths)

    def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> Any:
        return path if path.endswith(".records") else super().open(path, mode)

    def stat_many(self, names: Any) -> Any:
        return super().stat_many(["/ds/shard"] * len(names))

    def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
        views = super().read_batch([("/ds/shard", start, length) for _, start, length in rows], into)
        self.bytes_read += sum(map(len, views))
        return [
            memoryview(shard_header(NUMBERS[row[0]])[:16]) if row[1] == 0 else view
            for row, view in zip(rows, views, strict=True)
        ]


@pytest.mark.parametrize("has_lengths", [False, True])
def test_a_terabyte_of_small_samples_is_read_at_random_with_little_overhead(tmp_path: Path, has_lengths: bool) -> None:
    files = SyntheticFiles(str(tmp_path))
    files.has_lengths = has_lengths
    samples = files.prepare()
    assert samples * SAMPLE_BYTES > 0.99 * TERABYTE
    dataset = Dataset(files, "/ds", tables_bytes=64 << 20)
    numbers = np.random.default_rng(1).integers(0, samples, READ_SAMPLES)
    wanted = 0
    for first in range(0, READ_SAMPLES, BATCH):
        wanted += sum(map(len, dataset.read(numbers[first : first + BATCH].tolist())))
    amplification = files.bytes_read / wanted
    print(f"{amplification:.3f} bytes read per byte of {'different lengths' if has_lengths else 'one length'}")
    assert 1 < amplification <= 1.2
