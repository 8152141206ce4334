from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.comparison import compare
from threefs_checkpoint.index import Derived
from threefs_checkpoint.manager import CheckpointManager
from threefs_checkpoint.state import Shard, State

from tests.harness.checkpoint_files import CheckpointFiles


@pytest.mark.parametrize("chunk_bytes", [256, 512])
def test_tensors_are_compared_however_they_were_saved(tmp_path: Path, chunk_bytes: int) -> None:
    fs = CheckpointFiles(str(tmp_path))
    state: State = {"a": np.arange(1000), "b": np.zeros(9), "c": np.zeros(9), "d": np.zeros(9), "e": np.zeros(9)}
    other = np.arange(1000)
    save(fs, "/one", state, chunk_bytes=256)
    save(fs, "/same", state, chunk_bytes=chunk_bytes)
    assert compare(fs, "/one", "/same").equal
    other[999] = 0
    changed: State = {"a": other, "b": np.zeros((3, 3)), "c": np.zeros(9, np.int64), "d": np.zeros(9), "f": np.zeros(1)}
    save(fs, "/other", changed, chunk_bytes=chunk_bytes)
    found = compare(fs, "/one", "/other")
    assert not found.equal
    assert found == (["e"], ["f"], ["b", "c"], ["a"], ["d"], True)


def test_tensors_that_follow_from_masters_are_compared_with_all_others(tmp_path: Path) -> None:
    fs = CheckpointFiles(str(tmp_path))

    def saved(name: str, state: State, *derived: str, dtype: str = "bfloat16", chunk_bytes: int = 65536) -> str:
        manager = CheckpointManager(fs, f"/{name}", chunk_bytes=chunk_bytes)
        manager.save(1, state, masters={each: Derived(dtype, "master") for each in derived})
        manager.close()
        return f"/{name}/step-{1:012d}"

    ones = np.ones(200, np.float32)
    first = saved("first", {"master": ones}, "p", "q")
    assert compare(fs, first, first).same == ["master", "p", "q"]
    assert compare(fs, first, saved("chunks", {"master": ones}, "p", "q", chunk_bytes=131072)).equal
    assert compare(fs, first, saved("fewer", {"master": ones}, "p")).only_first == ["q"]
    assert compare(fs, first, saved("float16", {"master": ones}, "p", "q", dtype="float16")).reshaped == ["p", "q"]
    found = compare(fs, first, saved("near", {"master": ones * np.float32(1.0001)}, "p", "q"))
    assert (found.changed, found.same) == (["master"], ["p", "q"])
    assert compare(fs, first, saved("far", {"master": 2 * ones}, "p", "q")).changed == ["master", "p", "q"]
    bits = np.full(200, 0x3F80, np.uint16)
    bits[7] += 1
    stored: State = {"master": ones, "p": Shard(bits, (200,), (0,), "bfloat16")}
    found = compare(fs, first, saved("stored", stored, "q"))
    assert (found.changed, found.same) == (["p"], ["master", "q"])


def test_other_metadata_are_told_and_make_no_tensor_another_one(tmp_path: Path) -> None:
    fs = CheckpointFiles(str(tmp_path))
    for name, metadata in (("a", {"x": 1, "y": float("nan")}), ("b", {"y": float("nan"), "x": 1}), ("c", {"x": True})):
        save(fs, f"/{name}", {"t": np.zeros(3)}, metadata=metadata)
    assert compare(fs, "/a", "/b").same_metadata
    found = compare(fs, "/a", "/c")
    assert found.equal and not found.same_metadata
