"""Compares two checkpoints, however they were sharded."""

from typing import NamedTuple

from threefs_checkpoint.dtypes import bytes_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index, Tensor
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.loading import load
from threefs_checkpoint.slices import Slice, whole


class Comparison(NamedTuple):
    """Names of tensors."""

    only_first: list[str]
    only_second: list[str]
    reshaped: list[str]  # of another type or shape
    changed: list[str]  # of other content
    same: list[str]

    @property
    def equal(self) -> bool:
        return not (self.only_first or self.only_second or self.reshaped or self.changed)


def compare(fs: FileSystem, first: str, second: str) -> Comparison:
    """Compare bit by bit. Tensors that were sharded alike are compared by their checksums, others are read.

    Raises NotFound, Corrupt.
    """
    left, right = read_index(fs, first), read_index(fs, second)
    names = [name for name in left.tensors if name in right.tensors]
    found = Comparison(
        only_first=[name for name in left.tensors if name not in right.tensors],
        only_second=[name for name in right.tensors if name not in left.tensors],
        reshaped=[],
        changed=[],
        same=[],
    )
    for name in names:
        one, other = left.tensors[name], right.tensors[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            found.reshaped.append(name)
        elif _same(fs, (first, left), (second, right), name):
            found.same.append(name)
        else:
            found.changed.append(name)
    return found


def _same(fs: FileSystem, first: tuple[str, Index], second: tuple[str, Index], name: str) -> bool:
    one, other = (_pieces(index, index.tensors[name]) for _, index in (first, second))
    if one.keys() == other.keys():
        return one == other
    return _content(fs, *first, name) == _content(fs, *second, name)


def _pieces(index: Index, tensor: Tensor) -> dict[tuple[Slice, int, int], tuple[int, ...]]:
    """The checksums of each slice, by what its pieces are cut at."""
    return {(shard.part, shard.offset % index.chunk_bytes, index.chunk_bytes): shard.crcs for shard in tensor.shards}


def _content(fs: FileSystem, path: str, index: Index, name: str) -> memoryview:
    return bytes_of(load(fs, path, index, {name: whole(index.tensors[name].shape)})[name])
