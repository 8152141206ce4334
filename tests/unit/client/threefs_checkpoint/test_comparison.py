from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint.checkpoint import save
from threefs_checkpoint.comparison import compare
from threefs_checkpoint.state import State

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
    assert found == (["e"], ["f"], ["b", "c"], ["a"], ["d"])
