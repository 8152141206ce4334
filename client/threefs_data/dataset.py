"""Reads samples of a dataset by their numbers, many at a time."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument
from threefs_data import format
from threefs_data.files import FileSystem

TABLES_BYTES = 256 << 20


class Dataset:
    """Samples 0 .. len - 1 in the order in which they were packed. Also works as a map-style dataset of PyTorch.

    Tables of shards are read when first needed; at most `tables_bytes` of them (and always one) are kept.
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
        self._tables: OrderedDict[int, format.Table] = OrderedDict()
        self._tables_bytes = tables_bytes

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, number: int) -> bytes:
        return bytes(self.read([number])[0])

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        return [bytes(sample) for sample in self.read(numbers)]

    def read(self, numbers: Sequence[int]) -> list[memoryview]:
        """The samples of these numbers, verified, by one batch of reads. Raises InvalidArgument, Corrupt."""
        for number in numbers:
            if not 0 <= number < len(self):
                raise InvalidArgument(f"there is no sample {number} among the {len(self)} of {self.path}")
        owners = np.searchsorted(self._firsts, np.asarray(numbers, np.int64), side="right") - 1
        rows: list[tuple[str, int, int]] = []
        crcs: list[int] = []
        for number, owner in zip(numbers, owners.tolist(), strict=True):
            table = self._table(owner)
            place = number - int(self._firsts[owner])
            start = int(table.starts[place])
            rows.append((self._file(owner), start, int(table.starts[place + 1]) - start))
            crcs.append(int(table.crcs[place]))
        samples = [memoryview(view) for view in self._fs.read_batch(rows)]
        for number, sample, (file, _, length), crc in zip(numbers, samples, rows, crcs, strict=True):
            if len(sample) != length or crc32c(sample) != crc:
                raise Corrupt(f"sample {number} in {file} does not match its checksum")
        return samples

    def _file(self, shard: int) -> str:
        return f"{self.path}/{format.shard_name(shard)}"

    def _table(self, number: int) -> format.Table:
        table = self._tables.get(number)
        if table is not None:
            self._tables.move_to_end(number)
            return table
        shard, file = self.shards[number], self._file(number)
        header, content = self._fs.read_batch(
            [(file, 0, format.SHARD_HEADER_BYTES), (file, shard.data_bytes, shard.table_bytes)]
        )
        format.check_shard_header(bytes(header), number, file)
        table = self._tables[number] = format.decode_table(bytes(content), shard, file)
        while len(self._tables) > 1 and sum(kept.nbytes for kept in self._tables.values()) > self._tables_bytes:
            self._tables.popitem(last=False)
        return table
