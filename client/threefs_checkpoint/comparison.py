"""Compares two checkpoints, however they were sharded."""

import json
from typing import NamedTuple

from threefs_checkpoint.dtypes import bytes_of
from threefs_checkpoint.filesystem_protocol import FileSystem
from threefs_checkpoint.index import Index, Tensor
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.loading import load, shape_of
from threefs_checkpoint.slices import Slice, whole


class Comparison(NamedTuple):
    """Names of tensors, also of those that follow from masters."""

    only_first: list[str]
    only_second: list[str]
    reshaped: list[str]  # of another type or shape
    changed: list[str]  # of other content
    same: list[str]
    same_metadata: bool  # those of the user, which are not part of the tensors

    @property
    def equal(self) -> bool:
        """Whether all tensors are: each step has metadata of its own."""
        return not (self.only_first or self.only_second or self.reshaped or self.changed)


def compare(fs: FileSystem, first: str, second: str) -> Comparison:
    """Compare bit by bit. Tensors that were sharded alike are compared by their checksums, others are read.

    Raises NotFound, Corrupt.
    """
    left, right = read_index(fs, first), read_index(fs, second)
    names, others = ({**index.tensors, **index.derived} for index in (left, right))
    found = Comparison(
        only_first=[name for name in names if name not in others],
        only_second=[name for name in others if name not in names],
        reshaped=[],
        changed=[],
        same=[],
        same_metadata=_canonical(left.metadata) == _canonical(right.metadata),
    )
    for name in names:
        if name not in others:
            continue
        if (_dtype(left, name), shape_of(left, name)) != (_dtype(right, name), shape_of(right, name)):
            found.reshaped.append(name)
        elif _same(fs, (first, left), (second, right), name):
            found.same.append(name)
        else:
            found.changed.append(name)
    return found


def _canonical(metadata: object) -> str:
    """Python takes 1, 1.0 and True for the same, and a NaN for another one than itself."""
    return json.dumps(metadata, sort_keys=True)


def _dtype(index: Index, name: str) -> str:
    return (index.derived.get(name) or index.tensors[name]).dtype


def _same(fs: FileSystem, first: tuple[str, Index], second: tuple[str, Index], name: str) -> bool:
    (_, left), (_, right) = first, second
    one, other = _stored(left, name), _stored(right, name)
    is_derived = [name in index.derived for index in (left, right)]
    if is_derived[0] == is_derived[1] and one.dtype == other.dtype:
        mine, theirs = _pieces(left, one), _pieces(right, other)
        if mine == theirs:
            return True
        if mine.keys() == theirs.keys():
            # Values of other masters may be rounded to the same. After a step of training, the first part ends it.
            others = [key[0] for key, crcs in mine.items() if crcs != theirs[key]]
            return is_derived[0] and all(
                _content(fs, *first, name, part) == _content(fs, *second, name, part) for part in others
            )
    everything = whole(shape_of(left, name))
    return _content(fs, *first, name, everything) == _content(fs, *second, name, everything)


def _stored(index: Index, name: str) -> Tensor:
    """The tensor itself, or its master."""
    derived = index.derived.get(name)
    return index.tensors[name if derived is None else derived.master]


def _pieces(index: Index, tensor: Tensor) -> dict[tuple[Slice, int, int], tuple[int, ...]]:
    """The checksums of each slice, by what its pieces are cut at."""
    return {(shard.part, shard.offset % index.chunk_bytes, index.chunk_bytes): shard.crcs for shard in tensor.shards}


def _content(fs: FileSystem, path: str, index: Index, name: str, part: Slice) -> memoryview:
    return bytes_of(load(fs, path, index, {name: part})[name])
