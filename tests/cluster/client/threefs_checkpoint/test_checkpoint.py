from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray
from threefs_checkpoint import SaveFailedError, Shard, Slice, load, read_index, save
from threefs_checkpoint.dtypes import ELEMENT_TYPES

from tests.harness import single_file_checkpoint
from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.local_files import LocalFile
from threefs.checksums import Buffer
from threefs.errors import Corrupt, InvalidArgument, NoSpace, NotFound, NotSupported

CHUNK = 4096
CARRIERS = [kind.carrier for kind in ELEMENT_TYPES.values()]


class Recording(CheckpointFiles):
    """Notes which parts of a file were written."""

    def write_batch(self, rows: Sequence[tuple[LocalFile, int, Buffer]]) -> None:
        written.extend((offset, len(data)) for _, offset, data in rows)
        super().write_batch(rows)


written: list[tuple[int, int]] = []


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
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


def test_all_arrays_come_back_bit_by_bit(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    assert same(load(fs, "/ckpt"), model())
    assert fs.listing() == ["ckpt"]


def test_each_chunk_is_written_once_and_large_arrays_in_whole_chunks(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    chunks = [offset // CHUNK for offset, _ in written]
    assert len(chunks) == len(set(chunks))
    assert all(offset % CHUNK == 0 and length <= CHUNK for offset, length in written)
    (weight,) = read_index(fs, "/ckpt").tensors["layers/0/weight"].shards
    assert weight.offset % CHUNK == 0
    assert {(weight.offset + number * CHUNK, CHUNK) for number in range(7)} <= set(written)


def test_single_arrays_can_be_loaded(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    found = load(fs, "/ckpt", ["step", "mask"])
    assert list(found) == ["step", "mask"]
    assert found["step"] == 17 and found["step"].shape == ()
    with pytest.raises(NotFound, match="no tensor 'other'"):
        load(fs, "/ckpt", ["step", "other"])


def test_the_index_tells_types_and_shapes(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", model(), chunk_bytes=CHUNK)
    weight = read_index(fs, "/ckpt").tensors["layers/0/weight"]
    assert (weight.dtype, weight.shape, weight.nbytes) == ("float64", (100, 37), 29600)


@settings(max_examples=60, deadline=None)
@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5),
        arrays_of.arrays(
            st.sampled_from(CARRIERS),
            arrays_of.array_shapes(min_dims=0, min_side=0, max_side=9),
        ),
        max_size=8,
    ),
    chunk_bytes=st.sampled_from([64, 128, 256]),
)
def test_any_arrays_come_back(tmp_path_factory: pytest.TempPathFactory, arrays: Any, chunk_bytes: int) -> None:
    fs = CheckpointFiles(str(tmp_path_factory.mktemp("any")))
    save(fs, "/ckpt", arrays, chunk_bytes=chunk_bytes)
    assert same(load(fs, "/ckpt"), arrays)


def test_arrays_that_are_not_in_one_piece(fs: CheckpointFiles) -> None:
    whole = np.arange(100).reshape(10, 10)
    save(fs, "/ckpt", {"columns": whole[:, ::3], "turned": whole.T})
    found = load(fs, "/ckpt")
    assert (found["columns"] == whole[:, ::3]).all() and (found["turned"] == whole.T).all()


def test_arrays_of_subclasses_are_plain_and_masks_are_refused(fs: CheckpointFiles) -> None:
    matrix = np.arange(2.0 * CHUNK).reshape(2, CHUNK)
    save(fs, "/matrix", {"a": matrix.view(np.matrix)}, chunk_bytes=CHUNK)
    assert same(load(fs, "/matrix"), {"a": matrix})
    with pytest.raises(InvalidArgument, match="'a' is a masked array"):
        save(fs, "/masked", {"a": np.ma.masked_array(np.arange(3), [True, False, True])})


def test_an_older_checkpoint_is_replaced_whole(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", {"a": np.zeros(3)})
    save(fs, "/ckpt", {"b": np.ones(3)})
    assert list(load(fs, "/ckpt")) == ["b"]


def test_a_load_of_what_is_replaced_meanwhile_has_one_of_the_two(fs: CheckpointFiles, tmp_path: Path) -> None:
    save(fs, "/ckpt", {"a": np.zeros(1000)}, chunk_bytes=CHUNK)

    class Late(CheckpointFiles):
        is_late = True

        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            if self.is_late and "/data-" in str(rows[0][0]):
                self.is_late = False
                save(fs, "/ckpt", {"b": np.ones(1000)}, chunk_bytes=CHUNK)
            return super().read_batch(rows, into)

    assert same(load(Late(str(tmp_path)), "/ckpt"), {"b": np.ones(1000)})


def test_what_is_no_checkpoint_is_not_replaced(fs: CheckpointFiles) -> None:
    fs.mkdir("/data")
    save(fs, "/data", model())  # it was empty
    fs.mkdir("/other")
    fs.write_file("/other/shard", b"mine")
    fs.write_file("/file", b"mine")
    fs.mkdir("/site/index", parents=True)
    for number, content in enumerate((b"vectors of a search, which are many bytes", b"", b"threefs-")):
        fs.mkdir(f"/search-{number}")
        fs.write_file(f"/search-{number}/index", content)
    kept = ["file", "other", "search-0", "search-1", "search-2", "site"]
    for name in kept:
        with pytest.raises(SaveFailedError, match=f"/{name} is there and is no checkpoint; remove it"):
            save(fs, f"/{name}", model())
    assert sorted(entry.name for entry in fs.list("/")) == ["data", *kept]


def test_a_damaged_checkpoint_is_replaced(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", {"a": np.zeros(3)})
    index = fs._at("/ckpt/index")
    index.write_bytes(index.read_bytes()[:-1])
    save(fs, "/ckpt", {"b": np.ones(3)})
    assert list(load(fs, "/ckpt")) == ["b"]


def test_a_failed_save_leaves_the_older_one_and_nothing_else(tmp_path: Path) -> None:
    class Full(CheckpointFiles):
        def write_batch(self, rows: object) -> None:
            raise NoSpace

    save(CheckpointFiles(str(tmp_path)), "/ckpt", {"a": np.zeros(3)})
    full = Full(str(tmp_path))
    with pytest.raises(SaveFailedError, match=r"rank 0 on .*: NoSpace"):
        save(full, "/ckpt", {"a": np.ones(3)})
    assert full.listing() == ["ckpt"]
    assert (load(full, "/ckpt")["a"] == 0).all()


def test_bytes_that_storage_has_not_as_they_were_copied_are_never_published(tmp_path: Path) -> None:
    class Damaging(CheckpointFiles):
        def write_batch(self, rows: Sequence[tuple[LocalFile, int, Buffer]]) -> None:
            super().write_batch([(file, at, bytes(data[:-1]) + b"?") for file, at, data in rows])

    with pytest.raises(SaveFailedError, match=r"chunk 0 of /ckpt.unfinished-.*/data-00000 must have .*: storage has"):
        save(Damaging(str(tmp_path)), "/ckpt", {"a": np.zeros(3)})
    assert CheckpointFiles(str(tmp_path)).listing() == []


def test_a_file_of_the_first_format_is_loaded_and_replaced(fs: CheckpointFiles) -> None:
    fs.write_file("/ckpt", single_file_checkpoint.encode(model(), CHUNK))
    assert same(load(fs, "/ckpt"), model())
    save(fs, "/ckpt", {"a": np.zeros(3)})
    assert list(load(fs, "/ckpt")) == ["a"] and fs.listing() == ["ckpt"]


def test_other_directories_are_named(fs: CheckpointFiles) -> None:
    fs.mkdir("/empty")
    with pytest.raises(NotFound, match="/empty is no checkpoint: there is no file /empty/index"):
        load(fs, "/empty")
    with pytest.raises(NotFound):
        load(fs, "/nothing")


def test_narrow_floats_travel_as_the_integers_that_carry_them(fs: CheckpointFiles) -> None:
    bits = np.arange(1000, dtype=np.uint16).reshape(10, 100)
    save(fs, "/ckpt", {"w": Shard(bits, (10, 100), (0, 0), "bfloat16")})
    assert read_index(fs, "/ckpt").tensors["w"].dtype == "bfloat16"
    assert (load(fs, "/ckpt")["w"] == bits).all()
    assert (load(fs, "/ckpt", {"w": Slice((3, 10), (2, 5))})["w"] == bits[3:5, 10:15]).all()


def test_what_is_not_plain_numbers_is_refused_before_anything_is_written(fs: CheckpointFiles) -> None:
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
def test_what_is_no_array_is_refused_in_words_that_say_how_to_make_one(fs: CheckpointFiles, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"tensor 'a' is a .*{type(value).__name__}, .*\.numpy\(\) makes one of"):
        save(fs, "/ckpt", {"a": value})  # type: ignore[dict-item]
    assert fs.listing() == []


def test_damage_is_noticed(fs: CheckpointFiles, tmp_path: Path) -> None:
    save(fs, "/ckpt", {"a": np.arange(1000)}, chunk_bytes=CHUNK)
    for name, offsets in (("data-00000", (0, CHUNK, 7999)), ("index", (0, 20, 80, 200))):
        content = (tmp_path / "ckpt" / name).read_bytes()
        for offset in offsets:
            changed = bytearray(content)
            changed[offset] ^= 4
            (tmp_path / "ckpt" / name).write_bytes(changed)
            with pytest.raises((Corrupt, NotSupported)):
                load(fs, "/ckpt")
        for length in (0, 10, len(content) - 1):
            (tmp_path / "ckpt" / name).write_bytes(content[:length])
            with pytest.raises(Corrupt):
                load(fs, "/ckpt")
        (tmp_path / "ckpt" / name).write_bytes(content)
    assert (load(fs, "/ckpt")["a"] == np.arange(1000)).all()
