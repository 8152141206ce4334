import random
from typing import Any

import pytest
from threefs_client import FileSystem

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
import torch.distributed.checkpoint as dcp  # noqa: E402
from threefs_torch import ThreeFSReader, ThreeFSWriter  # noqa: E402
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner  # noqa: E402
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys  # noqa: E402

from tests.harness import torch_states as states  # noqa: E402
from threefs.errors import InvalidArgument  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def test_some_values(url: str) -> None:
    dcp.save(states.state(), storage_writer=ThreeFSWriter(url))
    found: Any = {"model": {"half": torch.zeros(33, dtype=torch.bfloat16)}}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    assert states.same(found["model"]["half"], states.state()["model"]["half"])
    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: other"):
        dcp.load({"other": torch.zeros(3)}, storage_reader=ThreeFSReader(url))
    found = {"other": torch.ones(3), "optimizer": {"step": torch.tensor(0)}}
    dcp.load(found, storage_reader=ThreeFSReader(url), planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert found == {"other": found["other"], "optimizer": {"step": torch.tensor(17)}}


def test_without_a_state_to_load_into(url: str) -> None:
    dcp.save(states.state(), storage_writer=ThreeFSWriter(url))
    found = _load_state_dict_from_keys(storage_reader=ThreeFSReader(url))
    assert states.same(found, states.state())
    assert list(_load_state_dict_from_keys("optimizer.step", storage_reader=ThreeFSReader(url))) == ["optimizer"]
    state: dict[str, Any] = {}
    dcp.state_dict_loader._load_state_dict(
        state, ThreeFSReader(url), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    assert states.same(state, states.state())


def test_a_tensor_of_another_shape_is_refused(url: str) -> None:
    dcp.save({"a": torch.zeros(3, 4)}, storage_writer=ThreeFSWriter(url))
    with pytest.raises(dcp.api.CheckpointException, match="Size mismatch"):
        dcp.load({"a": torch.zeros(4, 3)}, storage_reader=ThreeFSReader(url))


def test_code_in_a_checkpoint_does_not_run_unless_that_is_allowed(url: str) -> None:
    dcp.save({"a": random.Random(3), "b": 7}, storage_writer=ThreeFSWriter(url))
    found: dict[str, Any] = {"a": None, "b": 0}
    with pytest.raises(dcp.api.CheckpointException, match=r"value 'a' of .* is more than plain data") as failure:
        dcp.load(found, storage_reader=ThreeFSReader(url))
    assert "allow_pickle=True" in str(failure.value)
    found = {"b": 0}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    assert found == {"b": 7}
    found = {"a": None}
    dcp.load(found, storage_reader=ThreeFSReader(url, allow_pickle=True))
    assert found["a"].random() == random.Random(3).random()


def test_a_lost_or_cut_file_is_an_error(url: str, path: str, fs: FileSystem) -> None:
    dcp.save({"a": torch.ones(1000)}, storage_writer=ThreeFSWriter(url))
    (name,) = [entry.name for entry in fs.list(path) if entry.name.endswith(".data")]
    fs.truncate(f"{path}/{name}", 3000)
    with pytest.raises(dcp.api.CheckpointException, match="was cut short: it has 3000 of 4000 bytes"):
        dcp.load({"a": torch.zeros(1000)}, storage_reader=ThreeFSReader(url))
    fs.remove(f"{path}/{name}")
    with pytest.raises(dcp.api.CheckpointException, match=f"{name}"):
        dcp.load({"a": torch.zeros(1000)}, storage_reader=ThreeFSReader(url))


def test_no_checkpoint_is_an_error_with_the_reason(url: str) -> None:
    with pytest.raises(dcp.api.CheckpointException, match="no save into it was completed"):
        dcp.load({"a": torch.zeros(1000)}, storage_reader=ThreeFSReader(url + "/none"))
    with pytest.raises(InvalidArgument, match="staging_bytes must be at least 1"):
        ThreeFSReader(url, staging_bytes=0)
    assert ThreeFSReader.validate_checkpoint_id(url) and not ThreeFSReader.validate_checkpoint_id("/a")


def test_models_and_optimizers(url: str) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def made(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * seed)
        model(torch.randn(3, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return model, optimizer

    saved, loaded = made(1), made(2)
    state = dict(zip(("model", "optimizer"), get_state_dict(*saved), strict=True))
    dcp.save(state, storage_writer=ThreeFSWriter(url))
    found = dict(zip(("model", "optimizer"), get_state_dict(*loaded), strict=True))
    dcp.load(found, storage_reader=ThreeFSReader(url))
    set_state_dict(*loaded, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    assert states.same(dict(loaded[0].state_dict()), dict(saved[0].state_dict()))
    assert states.same(loaded[1].state_dict(), saved[1].state_dict())
