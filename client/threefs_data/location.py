"""Where samples lie: the rows that read them, and the check of what was read. Pure: no I/O here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from threefs.checksums import crc32c
from threefs.errors import Corrupt, InvalidArgument


def sample_numbers(numbers: Sequence[int], count: int, where: str) -> NDArray[np.int64]:
    """As an array. Raises InvalidArgument for what is no number of `count` samples."""
    wanted = np.asarray(numbers)
    if not wanted.size:
        return np.empty(0, np.int64)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1:
        raise InvalidArgument(f"numbers of samples are a row of whole numbers from 0 to {count - 1}, not {numbers!r}")
    outside = (wanted < 0) | (wanted >= count)
    if outside.any():
        raise InvalidArgument(
            f"there is no sample {wanted[outside.argmax()]} among the {count} of {where}; "
            f"give numbers from 0 to {count - 1}"
        )
    return wanted.astype(np.int64)


@dataclass(frozen=True)
class Location:
    """One entry per sample in each column."""

    numbers: NDArray[np.int64]
    files: list[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    chunk_bytes: NDArray[np.int64]  # of the file
    crcs: NDArray[np.int64]
    file_name: Callable[[int], str]  # of the sample at an index, for errors

    @cached_property
    def nbytes(self) -> int:
        """The size of a buffer for all samples, one after the other."""
        return int(self.lengths.sum())

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each sample begins in that buffer."""
        return np.cumsum(self.lengths) - self.lengths

    def rows(self) -> list[tuple[Any, int, int]]:
        """(file, offset, length) of what is to be read, in the order of the buffer. No row crosses the end of a chunk:
        the client sends rows within a chunk without looking at the file again."""
        rows = list(zip(self.files, self.starts.tolist(), self.lengths.tolist(), strict=True))
        last = self.starts + np.maximum(self.lengths, 1) - 1
        crossing = np.flatnonzero(self.starts // self.chunk_bytes != last // self.chunk_bytes)
        for index in reversed(crossing.tolist()):
            rows[index : index + 1] = _cut(rows[index], int(self.chunk_bytes[index]))
        return rows

    def check(self, buffer: memoryview) -> list[memoryview]:
        """The samples in the buffer that was filled. Raises Corrupt."""
        ends = self.offsets + self.lengths
        samples = [buffer[start:end] for start, end in zip(self.offsets.tolist(), ends.tolist(), strict=True)]
        for index, (sample, crc) in enumerate(zip(samples, self.crcs.tolist(), strict=True)):
            if crc32c(sample) != crc:
                raise self._mismatch(index)
        return samples

    def _mismatch(self, index: int) -> Corrupt:
        return Corrupt(f"sample {self.numbers[index]} in {self.file_name(index)} does not match its checksum")


def _cut(row: tuple[Any, int, int], chunk_bytes: int) -> list[tuple[Any, int, int]]:
    file, start, length = row
    end = start + length
    inner = range((start // chunk_bytes + 1) * chunk_bytes, end, chunk_bytes)
    edges = [start, *inner, end]
    return [(file, edge, following - edge) for edge, following in pairwise(edges)]
