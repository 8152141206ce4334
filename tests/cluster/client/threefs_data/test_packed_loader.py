from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_data import Dataset, PackedLoader, Packing, pack

from tests.harness.local_files import LocalFiles
from threefs.errors import InvalidArgument

#: Sample i consists of tokens i + 1.
LENGTHS = [number * 7 % 90 for number in range(300)]


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    pack(files, [np.full(length, number + 1, "<u2").tobytes() for number, length in enumerate(LENGTHS)], "/ds")
    return files


def loader(fs: LocalFiles, **options: Any) -> PackedLoader:
    options = {"token_bytes": 2, "global_batch": 8, "start_method": "fork", **options}
    return PackedLoader(Dataset(fs, "/ds"), Packing(64, window=50), **options)


def tokens(found: PackedLoader, most: int = 1000) -> Counter[int]:
    count: Counter[int] = Counter()
    for _, batch in zip(range(most), found, strict=False):
        values, segments = batch.arrays("<u2")
        assert ((values == 0) == (segments == 0)).all()
        for row, marks in zip(values, segments, strict=True):
            for segment in range(1, int(marks.max(initial=0)) + 1):
                assert len(set(row[marks == segment].tolist())) == 1
        count.update(values[values > 0].tolist())
    return count


@pytest.mark.parametrize("workers", [0, 2])
def test_every_token_once_over_ranks_stops_and_resumes(fs: LocalFiles, workers: int) -> None:
    expected = Counter({number + 1: length for number, length in enumerate(LENGTHS) if length})
    taken: Counter[int] = Counter()
    with loader(fs, workers=workers) as first:
        assert tokens(first) == expected
        assert first.state_dict()["epoch"] == 1
    with loader(fs, workers=workers) as second:
        taken += tokens(second, 3)
        state = second.state_dict()
    for rank in range(2):
        with loader(fs, rank=rank, world=2, workers=workers, global_batch=10) as rest:
            rest.load_state_dict(state)
            taken += tokens(rest)
    assert taken == expected


def test_tokens_must_be_whole(fs: LocalFiles) -> None:
    pack(fs, [b"abc"], "/odd")
    odd = PackedLoader(Dataset(fs, "/odd"), Packing(8), token_bytes=2, global_batch=1)
    with odd, pytest.raises(InvalidArgument, match="sample 0"):
        next(iter(odd))


def test_tokens_without_bytes_are_refused(fs: LocalFiles) -> None:
    """numpy counts no tokens then, so an epoch had no batches."""
    with pytest.raises(InvalidArgument, match="tokens of 0 bytes"):
        loader(fs, token_bytes=0)


def test_states_of_another_packing_are_refused(fs: LocalFiles) -> None:
    other = PackedLoader(Dataset(fs, "/ds"), Packing(65), token_bytes=2, global_batch=8)
    with pytest.raises(InvalidArgument, match="another dataset or order"):
        loader(fs).load_state_dict(other.state_dict())


def test_a_dataset_without_samples_is_refused(fs: LocalFiles) -> None:
    pack(fs, [], "/empty")
    with pytest.raises(InvalidArgument, match="0 samples"):
        PackedLoader(Dataset(fs, "/empty"), Packing(8), token_bytes=2, global_batch=1)
