import os
import resource
from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint import safetensors_format
from threefs_checkpoint.checkpoint import load, save
from threefs_checkpoint.job_directory import read_index
from threefs_checkpoint.safetensors_copy import export, import_file
from threefs_checkpoint.state import Shard, State

from tests.harness.checkpoint_files import CheckpointFiles
from threefs.errors import Corrupt, NotFound, NotSupported

STATE: State = {
    "w": np.arange(1000, dtype=np.float32).reshape(10, 100),
    "half": Shard(np.arange(77, dtype=np.uint16), (77,), (0,), "bfloat16"),
    "eighth": Shard(np.arange(5, dtype=np.uint8), (5,), (0,), "float8_e4m3fn"),
    "flag": np.array(True),
    "empty": np.zeros((0, 3), np.int64),
}


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    fs = CheckpointFiles(str(tmp_path))
    save(fs, "/c", STATE, chunk_bytes=256)
    return fs


def exported(fs: CheckpointFiles, names: list[str] | None = None) -> Path:
    file = Path(fs.root) / "model.safetensors"
    with file.open("wb") as opened:
        length = export(fs, "/c", names, opened.write)
    assert file.stat().st_size == length
    return file


def test_what_is_exported_and_imported_is_the_same_bit_by_bit(fs: CheckpointFiles) -> None:
    import_file(fs, exported(fs), "/d", chunk_bytes=128)
    first, second = load(fs, "/c"), load(fs, "/d")
    assert first.keys() == second.keys() == STATE.keys()
    for name in first:
        assert (first[name].dtype, first[name].shape) == (second[name].dtype, second[name].shape)
        assert first[name].tobytes() == second[name].tobytes()
    assert read_index(fs, "/d").tensors["half"].dtype == "bfloat16"
    assert read_index(fs, "/d").metadata == {"step": "0"}


def test_a_file_of_more_tensors_than_a_process_may_have_descriptors_is_imported(fs: CheckpointFiles) -> None:
    save(fs, "/c", {f"w.{number}": np.full(3, number, np.int16) for number in range(200)}, chunk_bytes=256)
    file = exported(fs)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, before[1]))
    try:
        import_file(fs, file, "/d", chunk_bytes=128)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert load(fs, "/d")["w.199"].tolist() == [199] * 3


def test_the_library_safetensors_reads_what_is_exported(fs: CheckpointFiles) -> None:
    library = pytest.importorskip("safetensors.numpy")
    found = library.load_file(exported(fs, ["w", "flag"]))
    assert (found["w"] == STATE["w"]).all() and found["flag"] == np.array(True) and len(found) == 2


def test_what_cannot_be_copied_is_named(fs: CheckpointFiles, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no tensor 'x'"):
        exported(fs, ["x"])
    save(fs, "/c", {"z": np.zeros(3, complex)}, chunk_bytes=256)
    with pytest.raises(NotSupported, match="'z' is complex128"):
        exported(fs)
    start, _ = safetensors_format.encode_header({"w": ("F4", (4,))})
    (tmp_path / "narrow").write_bytes(start + b"ab")
    with pytest.raises(NotSupported, match="'w' is F4"):
        import_file(fs, tmp_path / "narrow", "/e")
    (tmp_path / "short").write_bytes(start)
    with pytest.raises(Corrupt):
        import_file(fs, tmp_path / "short", "/e")
