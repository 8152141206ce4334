from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray
from threefs_checkpoint import load, read_index, save
from threefs_checkpoint.format import DTYPES

from tests.harness.local_files import LocalFile, LocalFiles
from threefs.checksums import Buffer
from threefs.errors import Corrupt, InvalidArgument, NoSpace, NotFound

CHUNK = 4096


class Recording(LocalFiles):
    """Notes which parts of a file were written."""

    def write_batch(self, rows: Sequence[tuple[LocalFile, int, Buffer]]) -> None:
        written.extend((offset, len(data)) for _, offset, data in rows)
        super().write_batch(rows)


written: list[tuple[int, int]] = []


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    written.clear()
    return Recording(str(tmp_path))


def model() -> dict[str, NDArray[Any]]:
    numbers = np.random.default_rng(1)
    return {
        "layers/0/bias": numbers.normal(size=10).astype(np.float32),
        "layers/0/weight": numbers.normal(size=(100, 37)),
        "step": np.array(17, np.int64),
        "empty": np.empty((0, 4), np.float16),
        "mask": numbers.integers(0, 2, 5000).astype(bool),
        "exact": np.arange(2 * CHUNK, dtype=np.uint8),
    }


def same(left: dict[str, NDArray[Any]], right: dict[str, NDArray[Any]]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def test_all_arrays_come_back_bit_by_bit(fs: LocalFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    assert same(load(fs, "/ckpt"), model())
    assert fs.listing() == ["ckpt"]


def test_each_chunk_is_written_once_and_large_arrays_in_whole_chunks(fs: LocalFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    chunks = [offset // CHUNK for offset, _ in written]
    assert len(chunks) == len(set(chunks))
    assert all(offset // CHUNK == (offset + length - 1) // CHUNK for offset, length in written)
    weight = read_index(fs, "/ckpt")["layers/0/weight"].offset
    assert weight % CHUNK == 0
    assert {(weight + number * CHUNK, CHUNK) for number in range(7)} <= set(written)
    assert written[-1][0] == 0  # the header comes last


def test_single_arrays_can_be_loaded(fs: LocalFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    found = load(fs, "/ckpt", ["step", "mask"])
    assert list(found) == ["step", "mask"]
    assert found["step"] == 17 and found["step"].shape == ()
    with pytest.raises(NotFound, match="no array 'other'"):
        load(fs, "/ckpt", ["step", "other"])


def test_the_index_tells_types_and_shapes(fs: LocalFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    index = read_index(fs, "/ckpt")
    assert (index["layers/0/weight"].dtype, index["layers/0/weight"].shape) == ("float64", (100, 37))
    assert index["layers/0/weight"].nbytes == 29600


@settings(max_examples=60, deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5),
        arrays_of.arrays(
            st.sampled_from(list(DTYPES.values())), arrays_of.array_shapes(min_dims=0, min_side=0, max_side=9)
        ),
        max_size=8,
    ),
    chunk_bytes=st.integers(44, 300),
)
def test_any_arrays_come_back(tmp_path_factory: pytest.TempPathFactory, arrays: Any, chunk_bytes: int) -> None:
    fs = LocalFiles(str(tmp_path_factory.mktemp("any")))
    save(fs, "/ckpt", arrays, chunk_bytes=chunk_bytes)
    assert same(load(fs, "/ckpt"), arrays)


def test_arrays_that_are_not_in_one_piece(fs: LocalFiles) -> None:
    whole = np.arange(100).reshape(10, 10)
    save(fs, "/ckpt", {"columns": whole[:, ::3], "turned": whole.T})
    found = load(fs, "/ckpt")
    assert (found["columns"] == whole[:, ::3]).all() and (found["turned"] == whole.T).all()


def test_an_older_checkpoint_is_replaced_whole(fs: LocalFiles) -> None:
    save(fs, "/ckpt", {"a": np.zeros(3)})
    save(fs, "/ckpt", {"b": np.ones(3)})
    assert list(load(fs, "/ckpt")) == ["b"]


def test_a_failed_save_leaves_the_older_one_and_nothing_else(tmp_path: Path) -> None:
    class Full(LocalFiles):
        def write_batch(self, rows: object) -> None:
            raise NoSpace

    save(LocalFiles(str(tmp_path)), "/ckpt", {"a": np.zeros(3)})
    full = Full(str(tmp_path))
    with pytest.raises(NoSpace):
        save(full, "/ckpt", {"a": np.ones(3)})
    assert full.listing() == ["ckpt"]
    assert (load(full, "/ckpt")["a"] == 0).all()


def test_what_is_not_plain_numbers_is_refused_before_anything_is_written(fs: LocalFiles) -> None:
    for array in (np.array([None]), np.array(["a"]), np.zeros(3, ">f8")):
        with pytest.raises(InvalidArgument):
            save(fs, "/ckpt", {"a": array})
    with pytest.raises(InvalidArgument):
        save(fs, "/ckpt", {"": np.zeros(3)})
    assert fs.listing() == []


class Tensor:
    """Not numpy's, though it has a shape and a type, as torch's have."""

    shape, dtype, ndim = (3,), "float32", 1


@pytest.mark.parametrize("value", [Tensor(), 3.0, [1.0, 2.0]])
def test_what_is_no_array_is_refused_in_words_that_say_how_to_make_one(fs: LocalFiles, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"array 'a' is a .*{type(value).__name__}, .*\.numpy\(\) makes one of"):
        save(fs, "/ckpt", {"a": value})  # type: ignore[dict-item]
    assert fs.listing() == []


def test_damage_is_noticed(fs: LocalFiles, tmp_path: Path) -> None:
    save(fs, "/ckpt", {"a": np.arange(1000)}, chunk_bytes=CHUNK)
    content = (tmp_path / "ckpt").read_bytes()
    for offset in (0, 20, CHUNK, CHUNK + 7999, len(content) - 1):
        changed = bytearray(content)
        changed[offset] ^= 4
        (tmp_path / "ckpt").write_bytes(changed)
        with pytest.raises(Corrupt):
            load(fs, "/ckpt")
    for length in (0, 10, CHUNK + 10, len(content) - 1):
        (tmp_path / "ckpt").write_bytes(content[:length])
        with pytest.raises(Corrupt):
            load(fs, "/ckpt")
