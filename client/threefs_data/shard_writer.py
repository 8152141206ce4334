"""Writes one shard file of a dataset, and the index that lists the shards.

Programs that write the shards of a dataset side by side use this: each shard by its number, then the index once.
"""

from array import array
from collections.abc import Sequence

from threefs.checksums import Buffer, crc32c
from threefs.errors import InvalidArgument
from threefs_data import format, record_table
from threefs_data.filesystem_protocol import FileSystem

_WRITE_BYTES = 4 << 20


class ShardWriter:
    """Writes shard `number` of a dataset to `path`. `finish` returns its row in the index."""

    def __init__(self, fs: FileSystem, path: str, number: int) -> None:
        self._file = fs.open(path, "wb")
        self._pending = bytearray(format.shard_header(number))
        self._lengths = array("I")
        self._crcs = bytearray()
        self._end = format.DATA_START

    @property
    def samples(self) -> int:
        return len(self._lengths)

    @property
    def data_bytes(self) -> int:
        """Header and samples so far."""
        return self._end

    def add(self, sample: Buffer) -> None:
        """Raises InvalidArgument for a sample that is too large."""
        view = memoryview(sample)
        if not view.c_contiguous:
            view = memoryview(view.tobytes())
        size = view.nbytes
        if size > format.MAX_SAMPLE_BYTES:
            raise InvalidArgument(f"a sample of {size} bytes is larger than {format.MAX_SAMPLE_BYTES}")
        content = view.cast("B") if size else b""  # an array would be added to the bytes before it, number by number
        self._pending += content
        self._crcs += format.sample_crc(content)
        self._lengths.append(size)
        self._end += size
        if len(self._pending) >= _WRITE_BYTES:
            self._write_pending()

    def finish(self) -> format.Shard:
        """Write the table, and close the file: it is durable then."""
        has_lengths = min(self._lengths, default=0) != max(self._lengths, default=0)
        self._pending += record_table.encode(bytes(self._crcs), self._lengths, has_lengths)
        self._write_pending()
        self._file.close()
        sample_bytes = 0 if has_lengths or not self._lengths else self._lengths[0]
        return format.Shard(self.samples, self.data_bytes, sample_bytes, has_lengths, crc32c(self._crcs))

    def close(self) -> None:
        """Give up: what was written is no shard."""
        self._file.close()

    def _write_pending(self) -> None:
        self._file.write(bytes(self._pending))
        self._pending.clear()


def write_index(fs: FileSystem, path: str, shards: Sequence[format.Shard]) -> None:
    """Write the index of the dataset in the directory `path`; the shards are there already."""
    with fs.open(f"{path}/{format.INDEX_NAME}", "wb") as file:
        file.write(format.encode_index(list(shards)))
