"""A dataset as large as one likes, of samples of 4 KiB that are all zeros: its shards lie in one sparse file."""

from pathlib import Path
from typing import Any

from threefs_data import record_table
from threefs_data.format import DATA_START, INDEX_NAME, Shard, encode_index, sample_crc, shard_header, shard_name

from tests.harness.local_files import LocalFiles

PATH = "/ds"
SAMPLE_BYTES = 4096
SHARD_SAMPLES = (256 << 20) // SAMPLE_BYTES - 1


class SyntheticFiles(LocalFiles):
    """Counts the bytes that are read. Samples have 4096 bytes, or from 2048 to 6143 bytes where there are tables."""

    has_lengths = False
    bytes_read = 0

    def prepare(self, samples: int) -> int:
        """Write the index, and one shard in the place of all others; the number of samples, which is a multiple of the
        samples of a shard."""
        count = min(samples, SHARD_SAMPLES)
        shards = samples // count
        (Path(self.root) / PATH[1:]).mkdir()
        lengths = [SAMPLE_BYTES + (index * 1009 % 4096 - 2048 if self.has_lengths else 0) for index in range(count)]
        with (Path(self.root) / PATH[1:] / "shard").open("wb") as shard:
            end = shard.seek(DATA_START + sum(lengths))
            crcs = b"".join(sample_crc(bytes(length)) for length in lengths)
            shard.write(record_table.encode(crcs, lengths, self.has_lengths))
        row = Shard(count, end, 0 if self.has_lengths else SAMPLE_BYTES, self.has_lengths, 0)
        (Path(self.root) / PATH[1:] / INDEX_NAME).write_bytes(encode_index([row] * shards))
        return shards * count

    def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> Any:
        return _Shard(path) if path.endswith(".records") else super().open(path, mode)

    def stat_many(self, names: Any) -> Any:
        return super().stat_many([f"{PATH}/shard"]) * len(names)

    def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
        views = super().read_batch([(f"{PATH}/shard", start, length) for _, start, length in rows], into)
        self.bytes_read += sum(map(len, views))
        return [
            memoryview(shard_header(_number(row[0]))[:16]) if row[1] == 0 else view
            for row, view in zip(rows, views, strict=True)
        ]


def _number(path: str) -> int:
    number = int(path.rpartition("-")[2].partition(".")[0])
    assert path == f"{PATH}/{shard_name(number)}"
    return number


class _Shard(str):
    """An open shard: its path."""

    def close(self) -> None:
        return
