"""Reads samples of a dataset by their numbers, many at a time."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument
from threefs_data import format
from threefs_data.filesystem_protocol import File, FileSystem

TABLES_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _OpenShard:
    file: File
    table: format.Table


class Dataset:
    """Samples 0 .. len - 1 in the order in which they were packed. Also works as a map-style dataset of PyTorch.

    Shards are opened, and their tables read, when they are first needed. At most `tables_bytes` of tables are kept,
    beyond those that the current batch needs.
    """

    def __init__(self, fs: FileSystem, path: str, *, tables_bytes: int = TABLES_BYTES) -> None:
        """Raises NotFound, Corrupt, NotSupported."""
        self.path = path.rstrip("/")
        self._fs = fs
        where = f"{self.path}/{format.INDEX_NAME}"
        with fs.open(where, "rb") as file:
            content = file.read(format.MAX_INDEX_BYTES + 1)
        self.shards = format.decode_index(content, where)
        # numbers of the first sample of each shard, and of the sample after the last
        self._firsts = np.cumsum([0] + [shard.samples for shard in self.shards], dtype=np.int64)
        self._open: OrderedDict[int, _OpenShard] = OrderedDict()
        self._tables_bytes = tables_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the dataset anew."""
        return _reopen, (self._fs, self.path, self._tables_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, number: int) -> bytes:
        return bytes(self.read([number])[0])

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        return [bytes(sample) for sample in self.read(numbers)]

    def close(self) -> None:
        """Close the shards; they are opened again when needed."""
        while self._open:
            self._open.popitem()[1].file.close()

    def read(self, numbers: Sequence[int]) -> list[memoryview]:
        """The samples of these numbers, verified, by one batch of reads. Raises InvalidArgument, Corrupt."""
        for number in numbers:
            if not 0 <= number < len(self):
                raise InvalidArgument(f"there is no sample {number} among the {len(self)} of {self.path}")
        owners: list[int] = (np.searchsorted(self._firsts, np.asarray(numbers, np.int64), side="right") - 1).tolist()
        self._open_shards(set(owners))
        rows: list[tuple[File, int, int]] = []
        crcs: list[int] = []
        for number, owner in zip(numbers, owners, strict=True):
            shard = self._open[owner]
            place = number - int(self._firsts[owner])
            start = int(shard.table.starts[place])
            rows.append((shard.file, start, int(shard.table.starts[place + 1]) - start))
            crcs.append(int(shard.table.crcs[place]))
        samples = [memoryview(view) for view in self._fs.read_batch(rows)]
        for number, owner, sample, (_, _, length), crc in zip(numbers, owners, samples, rows, crcs, strict=True):
            if len(sample) != length or crc32c(sample) != crc:
                raise Corrupt(f"sample {number} in {self._file(owner)} does not match its checksum")
        return samples

    def _file(self, shard: int) -> str:
        return f"{self.path}/{format.shard_name(shard)}"

    def _open_shards(self, numbers: set[int]) -> None:
        """Open these shards, and close the least recently used ones beyond `tables_bytes`."""
        for number in numbers & self._open.keys():
            self._open.move_to_end(number)
        missing = sorted(numbers - self._open.keys())
        rows: list[tuple[str, int, int]] = []
        for number in missing:
            shard = self.shards[number]
            rows.append((self._file(number), 0, format.SHARD_HEADER_BYTES))
            rows.append((self._file(number), shard.data_bytes, shard.table_bytes))
        views = self._fs.read_batch(rows) if rows else []
        for number, header, content in zip(missing, views[::2], views[1::2], strict=True):
            where = self._file(number)
            format.check_shard_header(bytes(header), number, where)
            table = format.decode_table(bytes(content), self.shards[number], where)
            self._open[number] = _OpenShard(self._fs.open(where, "rb"), table)
        kept = sum(shard.table.nbytes for shard in self._open.values()) if missing else 0
        while kept > self._tables_bytes and len(self._open) > len(numbers):
            _, shard_closed = self._open.popitem(last=False)
            kept -= shard_closed.table.nbytes
            shard_closed.file.close()


def _reopen(fs: FileSystem, path: str, tables_bytes: int) -> Dataset:
    return Dataset(fs, path, tables_bytes=tables_bytes)
