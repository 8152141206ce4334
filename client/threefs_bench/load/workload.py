"""The blocks that a process reads and writes: an endless row of groups, as a pure function of the job and its seed."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from threefs_data.permutation import Permutation

from threefs_bench.load import values
from threefs_bench.load.job import Job
from threefs_bench.load.zipf import Zipf

#: (number of the file, offset, length)
Row = tuple[int, int, int]
#: (whether it is written, blocks that go into one call)
Group = tuple[bool, list[Row]]

_DRAWN = 4096  # blocks that are drawn at a time
_Numbers = NDArray[np.int64]


def groups(job: Job, seed: int) -> Iterator[Group]:
    """Groups of `job.batch` blocks, each only read or only written. After a pass over the files the next one begins."""
    if len(job.block_sizes) > 1:
        return _split(job, seed)
    return _sequences(job, seed) if job.reads and job.writes and not job.is_random else _fixed(job, seed)


def seed_of(job: Job, number: int, process: int) -> int:
    """Of one process of the job with this number: others draw other blocks."""
    return int(np.random.SeedSequence([int(job["randseed"]), number, process]).generate_state(1, np.uint64)[0] >> 1)


def _fixed(job: Job, seed: int) -> Iterator[Group]:
    """Blocks of one size. In random order each pass has every block once."""
    random = np.random.default_rng(seed)
    block = job.block_sizes[0]
    in_file = job.file_bytes // block
    blocks = in_file * job.files
    drawn = max(_DRAWN // job.batch, 1) * job.batch
    zipf = Zipf(blocks, job["random_distribution"].theta, random) if job["random_distribution"].is_zipf else None
    scattered = Permutation(blocks, seed, 0)  # the blocks that come often lie apart
    number = 0
    while True:
        order = Permutation(blocks, seed, number + 1)
        for first in range(0, blocks, drawn):
            count = min(drawn, blocks - first)
            places = np.arange(first, first + count, dtype=np.int64)
            if job.is_random:
                places = (scattered(zipf.draw(count)) if zipf else order(places)).astype(np.int64)
            files, offsets = places // in_file, places % in_file * block
            yield from _grouped(job, random, files, offsets, np.full(count, block))
        number += 1


def _sequences(job: Job, seed: int) -> Iterator[Group]:
    """A sequential mix of blocks of one size. As with fio, reads and writes go through the files each by themselves."""
    random = np.random.default_rng(seed)
    places = [0, 0]
    while True:
        for is_write in _kinds(job, random, _DRAWN):
            rows, places[is_write] = _next_rows(job, [job.block_sizes[0]] * job.batch, places[is_write])
            yield is_write, rows


def _grouped(
    job: Job, random: np.random.Generator, files: _Numbers, offsets: _Numbers, lengths: _Numbers
) -> Iterator[Group]:
    batch = job.batch
    rows = iter(zip(files.tolist(), offsets.tolist(), lengths.tolist(), strict=True))
    for is_write in _kinds(job, random, -(-len(files) // batch)):
        yield is_write, list(islice(rows, batch))


def _kinds(job: Job, random: np.random.Generator, count: int) -> list[bool]:
    """Whether each group is written."""
    if job.read_percent in (0, 100):
        return [not job.read_percent] * count
    found: list[bool] = (random.random(count) * 100 >= job.read_percent).tolist()
    return found


def _split(job: Job, seed: int) -> Iterator[Group]:
    """Blocks of several sizes. Offsets are multiples of the smallest one; random ones may come again in a pass."""
    random = np.random.default_rng(seed)
    sizes = [_Sizes(job, is_write, random) for is_write in (False, True)]
    align = job.block_sizes[0]
    theta = job["random_distribution"].theta
    units = job.file_bytes // align
    zipf = Zipf(units * job.files, theta, random) if theta else None
    scattered = Permutation(units * job.files, seed, 0)
    places = [0, 0]  # of reads and of writes
    while True:
        for is_write in _kinds(job, random, _DRAWN // job.batch or 1):
            lengths = sizes[is_write].take(job.batch)
            if not job.is_random:
                rows, places[is_write] = _next_rows(job, lengths, places[is_write])
            else:
                count = len(lengths)
                drawn = scattered(zipf.draw(count)) if zipf else random.integers(0, units * job.files, count)
                rows = [
                    (number // units, min(number % units, (job.file_bytes - length) // align) * align, length)
                    for number, length in zip(drawn.tolist(), lengths, strict=True)
                ]
            yield is_write, rows


def _next_rows(job: Job, lengths: list[int], place: int) -> tuple[list[Row], int]:
    """The blocks from `place` on, in the files one behind the other, and the place behind them."""
    rows: list[Row] = []
    for length in lengths:
        if place % job.file_bytes + length > job.file_bytes:  # no block goes over the end of a file
            place += job.file_bytes - place % job.file_bytes
        place %= job.file_bytes * job.files
        rows.append((place // job.file_bytes, place % job.file_bytes, length))
        place += length
    return rows, place


class _Sizes:
    """Block sizes of one direction, drawn by their percentages."""

    def __init__(self, job: Job, is_write: bool, random: np.random.Generator) -> None:
        split = job.block_splits[is_write]
        self._sizes = np.array([values.size(share.what) for share in split], dtype=np.int64)
        self._chances = np.array([share.percent for share in split]) / 100.0
        self._random = random
        self._waiting: list[int] = []

    def take(self, count: int) -> list[int]:
        while len(self._waiting) < count:
            self._waiting += self._random.choice(self._sizes, _DRAWN, p=self._chances).tolist()
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken
