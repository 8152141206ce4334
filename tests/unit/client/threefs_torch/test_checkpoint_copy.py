"""Copies between checkpoints and directories of torch.distributed.checkpoint, over a local directory."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
import torch.distributed.checkpoint as dcp  # noqa: E402
from threefs_checkpoint.checkpoint import load, save  # noqa: E402
from threefs_checkpoint.index import Derived  # noqa: E402
from threefs_checkpoint.job_directory import read_index  # noqa: E402
from threefs_checkpoint.manager import CheckpointManager  # noqa: E402
from threefs_checkpoint.state import Shard, State  # noqa: E402
from threefs_torch.checkpoint_copy import export, import_directory  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tests.harness.checkpoint_files import CheckpointFiles  # noqa: E402
from threefs.errors import AlreadyExists, Corrupt, NotFound  # noqa: E402

of_torch_itself = pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning")

STATE: State = {
    "layer.w": np.arange(1000, dtype=np.float32).reshape(10, 100),
    "half": Shard(np.arange(77, dtype=np.uint16), (77,), (0,), "bfloat16"),
    "eighth": Shard(np.arange(5, dtype=np.uint8), (5,), (0,), "float8_e4m3fn"),
    "flag": np.array(True),
    "empty": np.zeros((0, 3), np.int64),
    "z": np.ones(3, np.complex128),
}


@pytest.fixture
def fs(tmp_path: Path) -> CheckpointFiles:
    fs = CheckpointFiles(str(tmp_path))
    save(fs, "/c", STATE, chunk_bytes=256)
    return fs


def test_what_is_exported_and_imported_is_the_same_bit_by_bit(fs: CheckpointFiles, tmp_path: Path) -> None:
    length = export(fs, "/c", tmp_path / "dcp")
    assert length == sum(array.nbytes for array in load(fs, "/c").values())
    assert import_directory(fs, tmp_path / "dcp", "/d", chunk_bytes=128) == []
    first, second = load(fs, "/c"), load(fs, "/d")
    assert first.keys() == second.keys() == STATE.keys()
    for name in first:
        assert (first[name].dtype, first[name].shape) == (second[name].dtype, second[name].shape)
        assert first[name].tobytes() == second[name].tobytes()
    assert read_index(fs, "/d").tensors["half"].dtype == "bfloat16"
    assert sorted(os.listdir(tmp_path)) == ["c", "d", "dcp"]


@of_torch_itself
def test_torch_reads_what_is_exported_and_its_own_is_imported(fs: CheckpointFiles, tmp_path: Path) -> None:
    export(fs, "/c", tmp_path / "dcp", ["layer.w"])
    found: dict[str, Any] = {"layer": {"w": torch.zeros(10, 100)}}
    dcp.load(found, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert torch.equal(found["layer"]["w"], torch.arange(1000.0).reshape(10, 100))
    model = torch.nn.Linear(3, 2).to(torch.bfloat16)
    dcp.save({"model": model.state_dict(), "step": 7}, checkpoint_id=tmp_path / "torch", no_dist=True)
    assert import_directory(fs, tmp_path / "torch", "/own") == ["step"]
    loaded = load(fs, "/own")
    assert set(loaded) == {"model.weight", "model.bias"}
    assert (loaded["model.weight"] == model.weight.detach().view(torch.uint16).numpy()).all()


def test_one_tensor_at_a_time_is_loaded(fs: CheckpointFiles, tmp_path: Path) -> None:
    class Counting(CheckpointFiles):
        largest = 0

        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            size = sum(row[2] for row in rows if "/data-" in str(row[0]))
            Counting.largest = max(Counting.largest, size)
            return super().read_batch(rows, into)

    save(fs, "/many", {f"{n}": np.full(1000, n) for n in range(20)}, chunk_bytes=1 << 16)
    export(Counting(fs.root), "/many", tmp_path / "dcp")
    assert 0 < Counting.largest <= 8000


@of_torch_itself
def test_parameters_that_follow_from_masters_are_exported(fs: CheckpointFiles, tmp_path: Path) -> None:
    manager = CheckpointManager(fs, "/run")
    masters = {"model.w": Derived("bfloat16", "optim.w")}
    manager.save(1, {"optim.w": np.full(5, 2.0, np.float32)}, masters=masters)
    manager.close()
    export(fs, "/run/step-000000000001", tmp_path / "dcp")
    found: dict[str, Any] = {"model.w": torch.zeros(5, dtype=torch.bfloat16)}
    dcp.load(found, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert found["model.w"].tolist() == [2.0] * 5


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch evil",)


def test_what_cannot_be_copied_is_named(fs: CheckpointFiles, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no tensor 'x'"):
        export(fs, "/c", tmp_path / "dcp", ["x"])
    (tmp_path / "there").mkdir()
    with pytest.raises(AlreadyExists, match="there is there already"):
        export(fs, "/c", tmp_path / "there")
    with pytest.raises(NotFound, match=r"no file .*/there/\.metadata"):
        import_directory(fs, tmp_path / "there", "/d")


def test_a_directory_without_the_files_that_it_names(fs: CheckpointFiles, tmp_path: Path) -> None:
    (tmp_path / "dcp").mkdir()
    size, index = torch.Size([4]), MetadataIndex("w", torch.Size([0]))
    whole = TensorStorageMetadata(TensorProperties(), size, [ChunkStorageMetadata(torch.Size([0]), size)])
    described = Metadata({"w": whole}, storage_data={index: _StorageInfo("__0_0.distcp", 0, 16)})
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(described))
    with pytest.raises(FileNotFoundError, match="__0_0"):
        import_directory(fs, tmp_path / "dcp", "/d")
    (tmp_path / "dcp" / "__0_0.distcp").write_bytes(b"no tensor at all")
    with pytest.raises(Corrupt, match=r"dcp: torch\.distributed\.checkpoint has failed"):
        import_directory(fs, tmp_path / "dcp", "/d")
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Metadata({"w": whole}, storage_data={})))
    with pytest.raises(Corrupt, match=r"dcp: torch\.distributed\.checkpoint has failed"):
        import_directory(fs, tmp_path / "dcp", "/d")


@of_torch_itself
def test_values_that_are_no_tensors_are_never_loaded(
    fs: CheckpointFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the directory changes in the midst: a value of it would be unpickled with everything that a pickle can
    do."""
    monkeypatch.chdir(tmp_path)
    dcp.save({"w": torch.ones(4)}, checkpoint_id="dcp", no_dist=True)
    dcp.save({"w": Evil()}, checkpoint_id="other", no_dist=True)
    file = tmp_path / "dcp" / ".metadata"
    own = file.read_bytes()
    file.unlink()
    os.mkfifo(file)

    def feed() -> None:
        with file.open("wb") as pipe:
            pipe.write(own)
            pipe.flush()
            for name in os.listdir("other"):
                os.replace(f"other/{name}", f"dcp/{name}")

    with ThreadPoolExecutor(1) as thread:
        fed = thread.submit(feed)
        with pytest.raises(Corrupt):
            import_directory(fs, tmp_path / "dcp", "/d")
        fed.result()
    assert not os.path.exists("evil")


def test_an_interruption_is_no_error_of_torch(fs: CheckpointFiles, tmp_path: Path) -> None:
    class Interrupted(CheckpointFiles):
        def read_batch(self, rows: Any, into: Any = None) -> list[memoryview]:
            if "/data-" in str(rows[0][0]):
                raise KeyboardInterrupt
            return super().read_batch(rows, into)

    with pytest.raises(KeyboardInterrupt):
        export(Interrupted(fs.root), "/c", tmp_path / "dcp")
    assert os.listdir(tmp_path) == ["c"]


def test_a_failed_export_leaves_nothing(fs: CheckpointFiles, tmp_path: Path) -> None:
    data = tmp_path / "c" / "data-00000"
    data.write_bytes(data.read_bytes()[:-300])
    with pytest.raises(Corrupt, match=r"checksum|cut short"):
        export(fs, "/c", tmp_path / "dcp")
    assert os.listdir(tmp_path) == ["c"]
