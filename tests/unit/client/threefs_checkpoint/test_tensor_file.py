import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint import safetensors_file, safetensors_format, tensor_file
from threefs_checkpoint.safetensors_file import SafetensorsFile
from threefs_checkpoint.tensor_file import slice_of

from tests.harness.checkpoint_files import CheckpointFiles
from threefs.errors import Corrupt, InvalidArgument, NotFound

STATE: dict[str, Any] = {
    "matrix": np.arange(60_000, dtype=np.float32).reshape(200, 300),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.uint8),
}


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    (tmp_path / "root").mkdir()
    return CheckpointFiles(str(tmp_path / "root"))


def test_only_what_is_asked_for_is_read(fs: CheckpointFiles) -> None:
    file_bytes = safetensors_file.save_file(fs, "/a", STATE, {"step": "7"})
    with SafetensorsFile(fs, "/a") as file:
        header = file.bytes_read
        assert header == file_bytes - sum(array.nbytes for array in STATE.values())
        assert sorted(file.keys()) == sorted(STATE) and file.metadata() == {"step": "7"}
        assert file.info("matrix").shape == (200, 300)
        assert file.get_tensor("scalar") == 7 and file.bytes_read == header + 8
        rows = file.get_slice("matrix")
        assert (rows.get_shape(), rows.get_dtype()) == ([200, 300], "F32")
        assert np.array_equal(rows[10:12], STATE["matrix"][10:12]) and file.bytes_read == header + 8 + 2400
        with pytest.raises(NotFound, match="has no tensor 'other'"):
            file.get_tensors(["other"])


def test_an_open_file_goes_on_when_another_one_takes_its_name(fs: CheckpointFiles) -> None:
    safetensors_file.save_file(fs, "/a", STATE)
    with SafetensorsFile(fs, "/a") as old:
        safetensors_file.save_file(fs, "/a", {"matrix": STATE["matrix"] + 1})
        with SafetensorsFile(fs, "/a") as new:
            assert new.known.inode != old.known.inode and new.keys() == ["matrix"]
            assert np.array_equal(new.get_tensor("matrix") - 1, old.get_tensor("matrix"))


def test_a_file_appears_whole_or_not_at_all(fs: CheckpointFiles) -> None:
    safetensors_file.save_file(fs, "/a", STATE)
    safetensors_file.save_file(fs, "/made/below/a", STATE)
    assert fs.listing("/made/below") == ["a"]

    def broken(name: str) -> list[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tensor_file.write(fs, "/a", {"w": ("F32", (3,))}, broken, None, 0)
    assert sorted(safetensors_file.load_file(fs, "/a")) == sorted(STATE)
    os.mkdir(fs.root + "/d")
    with pytest.raises(OSError):
        safetensors_file.save_file(fs, "/d", STATE)
    assert fs.listing() == ["a", "d", "made"], "nothing temporary is left"


def test_what_is_no_file_or_a_shorter_one_is_an_error(fs: CheckpointFiles) -> None:
    with pytest.raises(NotFound):
        SafetensorsFile(fs, "/none")
    start, _ = safetensors_format.encode_header({"w": ("F32", (1000,))})
    content = start + bytes(4000)
    for size in (0, 7, 20, len(content) - 1):
        (Path(fs.root) / "b").write_bytes(content[:size])
        with pytest.raises(Corrupt, match="/b"):
            safetensors_file.load_file(fs, "/b")
    (Path(fs.root) / "b").write_bytes(content)
    with SafetensorsFile(fs, "/b") as file:
        os.truncate(fs.root + "/b", 200)
        with pytest.raises(Corrupt, match="was cut short"):
            file.get_tensor("w")


_ARRAY = np.arange(4 * 5 * 6).reshape(4, 5, 6)
_PARTS = st.one_of(
    st.integers(-4, 3),
    st.just(...),
    st.builds(slice, *[st.none() | st.integers(-7, 7)] * 2),
)


@given(st.lists(_PARTS, max_size=4).map(tuple) | _PARTS)
def test_an_index_means_what_it_means_to_numpy(key: Any) -> None:
    try:
        wanted = _ARRAY[key]
    except IndexError as error:
        with pytest.raises((InvalidArgument, IndexError)):
            slice_of(_ARRAY.shape, key)
        assert "too many indices" in str(error) or "single ellipsis" in str(error)
        return
    part, shape = slice_of(_ARRAY.shape, key)
    box = tuple(slice(first, first + length) for first, length in zip(part.offset, part.shape, strict=True))
    assert np.array_equal(_ARRAY[box].reshape(shape), wanted) and shape == wanted.shape


def test_other_indexes_are_refused() -> None:
    for key in (slice(None, None, 2), slice(None, None, -1), None, [1, 2], "a", (0, 0, 0, 0), (..., ...)):
        with pytest.raises(InvalidArgument):
            slice_of((4, 5, 6), key)
    with pytest.raises(IndexError, match="index 4 is out of range for 4"):
        slice_of((4, 5, 6), 4)
