"""Packs samples into the shard files of a dataset."""

from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Self

from threefs.checksums import Buffer
from threefs.env.random import RANDOM, Random
from threefs.errors import InvalidArgument, NotFound, ThreefsError
from threefs_data import format
from threefs_data.filesystem_protocol import FileSystem
from threefs_data.shard_writer import ShardWriter, write_index

_READ_BYTES = 16 << 20
_FILES_AT_ONCE = 256


class DatasetWriter:
    """Write samples with `add`, in order. The dataset appears under its path, whole, when the block ends well:

    with DatasetWriter(fs, "/data/tokens") as writer:
        writer.add(b"...")
    """

    def __init__(self, fs: FileSystem, path: str, *, shard_bytes: int = 256 << 20, random: Random = RANDOM) -> None:
        if not 1 <= shard_bytes <= format.MAX_SHARD_BYTES - format.MAX_SAMPLE_BYTES:
            most = format.MAX_SHARD_BYTES - format.MAX_SAMPLE_BYTES
            raise InvalidArgument(f"shards of {shard_bytes} bytes are not possible; give 1 to {most} bytes")
        self.path = path.rstrip("/")
        self._fs = fs
        self._shard_bytes = shard_bytes
        self._unfinished = f"{self.path}.unfinished-{random.token(8).hex()}"
        self._shards: list[format.Shard] = []
        self._shard: ShardWriter | None = None

    def __enter__(self) -> Self:
        self._fs.mkdir(self._unfinished)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._abandon()
            return
        try:
            self._finish()
        except BaseException:
            self._abandon()
            raise

    def add(self, sample: Buffer) -> None:
        """Raises InvalidArgument for a sample that is too large."""
        if self._shard is None:
            number = len(self._shards)
            self._shard = ShardWriter(self._fs, f"{self._unfinished}/{format.shard_name(number)}", number)
        self._shard.add(sample)
        if self._shard.data_bytes >= self._shard_bytes or self._shard.samples == format.MAX_SHARD_SAMPLES:
            self._end_shard()

    def add_file(self, name: str, content: bytes) -> None:
        """A further file of the dataset, which appears with it."""
        with self._fs.open(f"{self._unfinished}/{name}", "wb") as file:
            file.write(content)

    def _end_shard(self) -> None:
        assert self._shard is not None
        shard, self._shard = self._shard, None
        self._shards.append(shard.finish())

    def _finish(self) -> None:
        if self._shard is not None:
            self._end_shard()
        write_index(self._fs, self._unfinished, self._shards)
        self._fs.rename(self._unfinished, self.path, replace=False)

    def _abandon(self) -> None:
        try:
            if self._shard is not None:
                self._shard.close()
            self._fs.remove(self._unfinished, recursive=True)
        except ThreefsError:
            pass  # the first error is the one to raise; the remains have "unfinished" in their name


def pack(fs: FileSystem, samples: Iterable[Buffer], path: str, *, shard_bytes: int = 256 << 20) -> int:
    """Make a dataset of `samples`, in their order; the number of samples."""
    count = 0
    with DatasetWriter(fs, path, shard_bytes=shard_bytes) as writer:
        for sample in samples:
            writer.add(sample)
            count += 1
    return count


def pack_files(fs: FileSystem, files: Iterable[str], path: str, *, shard_bytes: int = 256 << 20) -> int:
    """Make a dataset in which each sample is the content of one file; the number of samples."""
    return pack(fs, _contents(fs, files), path, shard_bytes=shard_bytes)


def _contents(fs: FileSystem, files: Iterable[str]) -> Iterator[memoryview]:
    """The contents of files, read in large batches."""
    rest = iter(files)
    while names := list(islice(rest, _FILES_AT_ONCE)):
        rows: list[tuple[str, int, int]] = []
        size = 0
        for name, found in zip(names, fs.stat_many(names), strict=True):
            if found is None:
                raise NotFound(f"there is no file {name!r}")
            if found.length > format.MAX_SAMPLE_BYTES:
                raise InvalidArgument(
                    f"{name!r} has {found.length} bytes; a sample has at most {format.MAX_SAMPLE_BYTES}"
                )
            if rows and size + found.length > _READ_BYTES:
                yield from fs.read_batch(rows)
                rows, size = [], 0
            rows.append((name, 0, found.length))
            size += found.length
        yield from fs.read_batch(rows)
