from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from threefs_checkpoint import read_once, safetensors_file, safetensors_format
from threefs_checkpoint.group import Group
from threefs_checkpoint.loading import LoadReport
from threefs_checkpoint.safetensors_file import SafetensorsFile
from threefs_checkpoint.safetensors_format import Header

from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.ranks import each_rank, outcomes
from threefs.errors import Corrupt, Unavailable


def header_of(sizes: Sequence[int]) -> Header:
    return safetensors_format.encode_header({f"t{n}": ("U8", (size,)) for n, size in enumerate(sizes)})[1]


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 8))
def test_each_byte_is_in_one_piece_and_the_work_is_shared(sizes: list[int], world: int) -> None:
    header = header_of(sizes)
    found = read_once.pieces(header, world, 64)
    covered: Counter[int] = Counter()
    for piece in found:
        assert piece.length == sum(part.length for part in piece.parts) <= 64
        covered.update(range(piece.offset, piece.offset + piece.length))
        at = piece.offset
        for part in piece.parts:
            assert header.tensors[part.tensor].offset + part.begin == at
            at += part.length
    assert set(covered.values()) <= {1} and len(covered) == sum(sizes)
    load = [sum(piece.length for piece in found if piece.reader == rank) for rank in range(world)]
    assert max(load) - min(load) <= 64


class Counting(CheckpointFiles):
    """Counts how often each byte of the file is read."""

    def read_batch(self, rows: Sequence[tuple[Any, int, int]], into: Any = None) -> list[memoryview]:
        for _, offset, length in rows:
            reads.extend(range(offset, offset + length))
        return super().read_batch(rows, into)


reads: list[int] = []


@pytest.fixture
def fs(tmp_path: Path) -> Counting:
    reads.clear()
    (tmp_path / "root").mkdir()
    return Counting(str(tmp_path / "root"))


ARRAYS: dict[str, Any] = {
    "large": np.arange(3000, dtype=np.float64),
    **{f"small.{n}": np.full((n, 3), n, np.int16) for n in range(40)},
}


def load(fs: CheckpointFiles, group: Group, report: LoadReport | None = None) -> dict[str, NDArray[Any]]:
    return read_once.load(partial(SafetensorsFile, fs, "/a"), group, report, piece_bytes=512, round_bytes=4096)


@pytest.mark.parametrize("world", range(1, 9))
def test_storage_reads_each_byte_once(fs: Counting, world: int) -> None:
    length = safetensors_file.save_file(fs, "/a", ARRAYS)
    reports = [LoadReport() for _ in range(world)]
    found = each_rank(world, lambda group: load(fs, group, reports[group.rank]))
    assert sorted(reads) == list(range(length))
    for each in found:
        assert each.keys() == ARRAYS.keys() and all(np.array_equal(each[name], ARRAYS[name]) for name in ARRAYS)
    data = sum(array.nbytes for array in ARRAYS.values())
    assert sum(report.bytes_read for report in reports) == length
    assert sum(report.bytes_received for report in reports) == data * (world - 1)


def test_a_rank_that_cannot_read_ends_the_load_of_all(fs: Counting) -> None:
    safetensors_file.save_file(fs, "/a", ARRAYS)

    class Broken(CheckpointFiles):
        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            raise Corrupt("a chunk is lost")

    found = outcomes(3, lambda group: load(Broken(fs.root) if group.rank == 1 else fs, group))
    assert isinstance(found[1], Corrupt)
    for rank in (0, 2):
        assert isinstance(found[rank], Unavailable) and "rank 1 could not load its part" in str(found[rank])


def test_ranks_that_open_different_files_say_so(fs: Counting) -> None:
    safetensors_file.save_file(fs, "/a", ARRAYS)

    class Late(CheckpointFiles):
        def open(self, path: str, mode: str = "rb", *, chunk_bytes: int = 0) -> Any:
            safetensors_file.save_file(fs, "/a", ARRAYS)
            return super().open(path, mode, chunk_bytes=chunk_bytes)

    found = outcomes(2, lambda group: load(Late(fs.root) if group.rank == 1 else fs, group))
    assert all("was replaced while the ranks opened it" in str(error) for error in found)
