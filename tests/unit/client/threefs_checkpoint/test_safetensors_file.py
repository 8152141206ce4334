from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threefs_checkpoint import safetensors_file
from threefs_checkpoint.loading import LoadReport
from threefs_checkpoint.safetensors_file import SafetensorsFile

from tests.harness.checkpoint_files import CheckpointFiles
from tests.harness.ranks import each_rank
from threefs.errors import InvalidArgument

_DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "float16",
    "int32",
    "uint32",
    "float32",
    "float64",
    "int64",
    "uint64",
)


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    (tmp_path / "root").mkdir()
    return CheckpointFiles(str(tmp_path / "root"))


@pytest.fixture
def arrays() -> dict[str, Any]:
    random = np.random.default_rng(7)
    made: dict[str, Any] = {name: random.integers(0, 2, (17, 9)).astype(name) for name in _DTYPES}
    return made | {"transposed": np.arange(12.0).reshape(3, 4).T, "scalar": np.array(3.5), "none": np.zeros((4, 0))}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == array.dtype and found[name].shape == array.shape and np.array_equal(found[name], array)
        for name, array in wanted.items()
    )


def test_what_is_saved_is_loaded(fs: CheckpointFiles, arrays: dict[str, Any]) -> None:
    length = safetensors_file.save_file(fs, "/a", arrays, {"from": "a test"})
    assert (Path(fs.root) / "a").stat().st_size == length
    assert same(safetensors_file.load_file(fs, "/a"), arrays)
    assert same(safetensors_file.load_file(fs, "/a", ["int8"]), {"int8": arrays["int8"]})
    with pytest.raises(InvalidArgument, match="'z' has the type complex128"):
        safetensors_file.save_file(fs, "/a", {"z": np.zeros(3, complex)})
    assert same(safetensors_file.load_file(fs, "/a"), arrays)


def test_the_library_writes_and_reads_the_same_files(fs: CheckpointFiles, arrays: dict[str, Any]) -> None:
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed (make ml-venv)")
    safetensors_file.save_file(fs, "/a", arrays, {"from": "a test"})
    assert same(library.load_file(f"{fs.root}/a"), arrays)
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    library.save_file(contiguous, f"{fs.root}/b", {"from": "a test"})
    assert same(safetensors_file.load_file(fs, "/b"), arrays)
    assert (Path(fs.root) / "a").read_bytes()[8:] == (Path(fs.root) / "b").read_bytes()[8:]
    with SafetensorsFile(fs, "/b") as file:
        assert file.metadata() == {"from": "a test"}


def test_bfloat16_and_narrow_floats(fs: CheckpointFiles) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed (make ml-venv)")
    names = ("bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
    arrays = {name: np.arange(1, 30).astype(getattr(ml_dtypes, name)) for name in names}
    safetensors_file.save_file(fs, "/a", arrays)
    assert same(safetensors_file.load_file(fs, "/a"), arrays)
    with SafetensorsFile(fs, "/a") as file:
        assert np.array_equal(file.get_slice("bfloat16")[3:5], arrays["bfloat16"][3:5])


def test_all_ranks_get_all_tensors(fs: CheckpointFiles, arrays: dict[str, Any]) -> None:
    length = safetensors_file.save_file(fs, "/a", arrays)
    reports = [LoadReport() for _ in range(3)]
    found = each_rank(3, lambda group: safetensors_file.load_once(fs, "/a", group, reports[group.rank]))
    assert all(same(each, arrays) for each in found)
    assert sum(report.bytes_read for report in reports) == length
