"""Saved on some ranks, loaded on others: bit-exact, and each byte read once."""

import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threefs_checkpoint import loading
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.dtypes import ELEMENT_TYPES
from threefs_checkpoint.group import Group
from threefs_checkpoint.index import Derived, Index, Tensor
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.loading import LoadReport, load, wanted_of
from threefs_checkpoint.saving import Saver
from threefs_checkpoint.slices import Slice, whole
from threefs_checkpoint.state import Shard

from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.ranks import each_rank, outcomes
from threefs.errors import Corrupt, InvalidArgument, NotFound, Unavailable

CHUNK = 256


class Plain:
    """Publishes under one path."""

    def __init__(self, fs: CheckpointFiles) -> None:
        self.fs = fs

    def begin(self) -> str:
        self.fs.mkdir("/filled")
        return "/filled"

    def publish(self, path: str) -> str:
        self.fs.rename(path, "/ckpt")
        return "/ckpt"

    def abandon(self, path: str) -> None:
        self.fs.remove(path, recursive=True)


Tensors = dict[str, tuple[str, NDArray[Any]]]


@st.composite
def tensors(draw: st.DrawFn) -> Tensors:
    found = {}
    for number in range(draw(st.integers(1, 4))):
        dtype = draw(st.sampled_from(["float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "complex128"]))
        shape = draw(st.lists(st.integers(0, 40), max_size=3).map(tuple))
        count = int(np.prod(shape)) * ELEMENT_TYPES[dtype].itemsize
        content = np.frombuffer(np.random.default_rng(number).bytes(count), np.uint8)
        carrier = ELEMENT_TYPES[dtype].carrier
        array = (content % 2).astype(bool) if dtype == "bool" else content.view(carrier)
        found[f"t{number}"] = (dtype, array.reshape(shape))
    return found


def cut(draw: Any, shape: tuple[int, ...], ranks: int) -> list[Slice]:
    """The slice of each rank: along one dimension, or all of it."""
    if not shape or draw(st.booleans()):
        return [whole(shape)] * ranks
    dimension = draw(st.integers(0, len(shape) - 1))
    cuts = sorted(draw(st.lists(st.integers(0, shape[dimension]), min_size=ranks - 1, max_size=ranks - 1)))
    edges = [0, *cuts, shape[dimension]]
    return [
        Slice(
            tuple(edges[rank] if at == dimension else 0 for at in range(len(shape))),
            tuple(edges[rank + 1] - edges[rank] if at == dimension else size for at, size in enumerate(shape)),
        )
        for rank in range(ranks)
    ]


def saved(fs: CheckpointFiles, contents: Tensors, layout: dict[str, list[Slice]], ranks: int) -> Index:
    def work(group: Group) -> None:
        state = {}
        for name, (dtype, array) in contents.items():
            part = layout[name][group.rank]
            held = np.asarray(array[part.relative_to(whole(array.shape))])
            state[name] = Shard(held, array.shape, part.offset, dtype)
        saver = Saver(fs, group, chunk_bytes=CHUNK, staging_bytes=4 * CHUNK)
        saver.save(1, state, Plain(fs))
        saver.wait()
        saver.close()

    each_rank(ranks, work)
    return read_index(fs, "/ckpt")


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data(), tensors(), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 8]))
def test_what_some_ranks_save_others_load_bit_by_bit(data: Any, contents: Tensors, savers: int, loaders: int) -> None:
    """Each rank loads the slices of a sharding of its own."""
    layout = {name: cut(data.draw, array.shape, savers) for name, (_, array) in contents.items()}
    target = {name: cut(data.draw, array.shape, loaders) for name, (_, array) in contents.items()}
    read_once = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as directory:
        fs = CheckpointFiles(directory)
        index = saved(fs, contents, layout, savers)
        reports = [LoadReport() for _ in range(loaders)]

        def work(group: Group) -> dict[str, NDArray[Any]]:
            wanted = {name: parts[group.rank] for name, parts in target.items()}
            return load(fs, "/ckpt", index, wanted, group=group, read_once=read_once, report=reports[group.rank])

        found = each_rank(loaders, work)
    for rank, arrays in enumerate(found):
        for name, (_, array) in contents.items():
            part = target[name][rank]
            expected = np.asarray(array[part.relative_to(whole(array.shape))])
            assert arrays[name].dtype == expected.dtype and arrays[name].shape == expected.shape
            assert arrays[name].tobytes() == expected.tobytes()
    if read_once:
        assert sum(report.bytes_read for report in reports) <= index.nbytes


@pytest.fixture
def fs(tmp_path: Any) -> CheckpointFiles:
    return CheckpointFiles(str(tmp_path))


def test_eight_ranks_that_load_all_read_each_byte_once(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", {"a": np.arange(5000), "b": np.ones((7, 11), np.int8)}, chunk_bytes=CHUNK)
    index = read_index(fs, "/ckpt")
    reports = [LoadReport() for _ in range(8)]

    def work(group: Group) -> int:
        found = load(fs, "/ckpt", index, wanted_of(index, None), group=group, report=reports[group.rank])
        return int(found["a"].sum() + found["b"].sum())

    assert each_rank(8, work) == [5000 * 4999 // 2 + 77] * 8
    assert sum(report.bytes_read for report in reports) == index.nbytes
    assert all(report.bytes_read + report.bytes_received == index.nbytes for report in reports)
    assert max(report.bytes_read for report in reports) < index.nbytes / 6


def test_small_rounds_load_the_same(fs: CheckpointFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ROUND_BYTES", 3 * CHUNK)
    save(fs, "/ckpt", {"a": np.arange(5000)}, chunk_bytes=CHUNK)
    index = read_index(fs, "/ckpt")
    found = each_rank(3, lambda group: load(fs, "/ckpt", index, wanted_of(index, None), group=group))
    assert all((each["a"] == np.arange(5000)).all() for each in found)


def test_damage_that_one_rank_finds_fails_the_load_on_all(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", {"a": np.arange(5000)}, chunk_bytes=CHUNK)
    index = read_index(fs, "/ckpt")
    path = fs._at("/ckpt/data-00000")
    content = bytearray(path.read_bytes())
    content[CHUNK + 5] ^= 1
    path.write_bytes(content)
    found = outcomes(2, lambda group: load(fs, "/ckpt", index, wanted_of(index, None), group=group))
    assert sorted(type(error).__name__ for error in found) == [Corrupt.__name__, Unavailable.__name__]
    assert any("tensor 'a', came from storage" in str(error) for error in found)


def test_a_tensor_that_is_missing_is_named_on_all_ranks(fs: CheckpointFiles) -> None:
    save(fs, "/ckpt", {"a": np.arange(5)}, chunk_bytes=CHUNK)
    index = read_index(fs, "/ckpt")
    names = [["a"], ["a", "b"]]
    found = outcomes(2, lambda group: load(fs, "/ckpt", index, wanted_of(index, names[group.rank]), group=group))
    assert isinstance(found[0], Unavailable) and isinstance(found[1], NotFound)


def test_tensors_are_loaded_into_memory_that_is_there(fs: CheckpointFiles) -> None:
    master = np.linspace(0, 1, 1000, dtype=np.float32)
    save(fs, "/ckpt", {"a": master, "b": np.arange(900).reshape(30, 30)}, chunk_bytes=CHUNK)
    index = replace(read_index(fs, "/ckpt"), derived={"p": Derived("bfloat16", "a")})
    into: dict[str, NDArray[Any]] = {
        "a": np.zeros(1000, np.float32),
        "b": np.zeros((5, 7), np.int64),
        "p": np.zeros(1000, np.uint16),
    }
    wanted = {**wanted_of(index, ["a", "p"]), "b": Slice((3, 4), (5, 7))}
    found = load(fs, "/ckpt", index, wanted, into=into)
    assert all(found[name] is array for name, array in into.items())
    assert (into["a"] == master).all() and into["p"][-1] == 0x3F80
    assert (into["b"] == np.arange(900).reshape(30, 30)[3:8, 4:11]).all()
    for other in (np.zeros(999, np.float32), np.zeros(1000), np.zeros(2000, np.float32)[::2]):
        with pytest.raises(InvalidArgument, match="'a' is loaded into a contiguous, writable array of float32"):
            load(fs, "/ckpt", index, wanted, into={"a": other})


def test_a_tensor_that_no_memory_has_is_named(fs: CheckpointFiles) -> None:
    index = Index(1, 1, 1, CHUNK, (), {"w": Tensor("w", "int8", (1 << 50,), ())})
    with pytest.raises(InvalidArgument, match="no memory for the 1125899906842624 bytes of tensor 'w'"):
        load(fs, "/c", index, wanted_of(index, None))
