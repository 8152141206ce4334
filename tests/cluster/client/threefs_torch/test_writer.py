"""The cases that torch's own tests have for its file system, fsspec and asynchronous saves, on a real cluster."""

import pickle
from typing import Any

import pytest
from threefs_client import FileSystem

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
import torch.distributed.checkpoint as dcp  # noqa: E402
from threefs_torch import ThreeFSReader, ThreeFSWriter  # noqa: E402

from tests.harness import torch_states as states  # noqa: E402
from tests.harness.torch_ranks import run_ranks  # noqa: E402
from threefs.errors import InvalidArgument  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def files(fs: FileSystem, path: str) -> list[str]:
    return [entry.name for entry in fs.list(path)]


def test_a_state_comes_back(url: str) -> None:
    metadata = dcp.save(states.state(), storage_writer=ThreeFSWriter(url))
    found = states.blank(states.state())
    dcp.load(found, storage_reader=ThreeFSReader(url))
    assert states.same(found, states.state())
    assert metadata.storage_meta.checkpoint_id == url


def test_large_tensors_pass_through_little_memory(url: str, path: str, fs: FileSystem) -> None:
    """Batches are smaller than a tensor; small tensors share chunks."""
    saved: dict[str, Any] = {f"small {number}": torch.full((number,), number) for number in range(50)}
    saved |= {"large": torch.randn(700, 1000), "turned": torch.randn(700, 1000).t(), "more": torch.randn(70_000)}
    dcp.save(saved, storage_writer=ThreeFSWriter(url, staging_bytes=100_000, chunk_bytes=1 << 16))
    (name,) = [name for name in files(fs, path) if name.endswith(".data")]
    layout = fs.stat(f"{path}/{name}").layout
    assert layout is not None and layout.chunk_bytes == 1 << 16
    found = states.blank(saved)
    found["turned"] = torch.zeros(700, 1000, dtype=torch.float64).t()  # of another type and order
    dcp.load(found, storage_reader=ThreeFSReader(url, staging_bytes=50_000))
    assert torch.equal(found.pop("turned").float(), saved.pop("turned"))
    assert states.same(found, saved)


def test_a_checkpoint_is_replaced_only_when_that_is_wanted(url: str, path: str, fs: FileSystem) -> None:
    dcp.save({"a": torch.ones(3)}, storage_writer=ThreeFSWriter(url))
    before = files(fs, path)
    with pytest.raises(dcp.api.CheckpointException, match="has a checkpoint already"):
        dcp.save({"a": torch.zeros(3)}, storage_writer=ThreeFSWriter(url))
    assert files(fs, path) == before
    writer = ThreeFSWriter(url, overwrite=True)
    for value in (2.0, 3.0):
        dcp.save({"a": torch.full((3,), value)}, storage_writer=writer)
        found = {"a": torch.zeros(3)}
        dcp.load(found, storage_reader=ThreeFSReader(url))
        assert found["a"].tolist() == [value] * 3
        assert len(files(fs, path)) == 2  # the metadata and one file: those of the old checkpoint are gone


class Interrupted(dcp.DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        if write_item.index.fqn == "b":
            raise RuntimeError("the device is lost")
        return super().resolve_data(write_item)


def test_a_failed_save_leaves_the_old_checkpoint(url: str, path: str, fs: FileSystem) -> None:
    dcp.save({"a": torch.ones(3)}, storage_writer=ThreeFSWriter(url))
    before = files(fs, path)
    with pytest.raises(dcp.api.CheckpointException, match="the device is lost"):
        dcp.save(
            {"a": torch.zeros(1 << 20), "b": torch.zeros(3)},
            storage_writer=ThreeFSWriter(url, overwrite=True, staging_bytes=1 << 20),
            planner=Interrupted(),
        )
    assert files(fs, path) == before
    found = {"a": torch.zeros(3)}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    assert found["a"].tolist() == [1.0] * 3


def test_a_write_that_fails_fails_the_save(url: str, path: str, fs: FileSystem) -> None:
    writer = ThreeFSWriter(url, staging_bytes=1 << 20, connect_timeout_s=7.0)  # with a connection of its own

    class Disconnecting(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if write_item.index.fqn == "b":
                writer._directory.fs.close()
            return super().resolve_data(write_item)

    with pytest.raises(dcp.api.CheckpointException, match="the file system object is closed"):
        dcp.save({"a": torch.zeros(1 << 20), "b": torch.zeros(1 << 20)}, storage_writer=writer, planner=Disconnecting())
    assert ".metadata.json" not in files(fs, path)


def test_a_planner_may_change_what_it_saves(url: str) -> None:
    class Halving(dcp.DefaultSavePlanner):
        def transform_object(self, write_item: Any, value: Any) -> Any:
            return super().transform_object(write_item, value.to(torch.float16))

    dcp.save({"a": torch.arange(6.0).reshape(2, 3)}, storage_writer=ThreeFSWriter(url), planner=Halving())
    found = {"a": torch.zeros(2, 3)}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    assert found["a"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]

    class Losing(dcp.DefaultSavePlanner):
        def transform_object(self, write_item: Any, value: Any) -> Any:
            return value[:1]

    with pytest.raises(dcp.api.CheckpointException, match="gave 3 numbers for 'a', which has 6 in its plan"):
        dcp.save({"a": torch.zeros(2, 3)}, storage_writer=ThreeFSWriter(url + "/other"), planner=Losing())


def test_a_writer_is_used_for_many_checkpoints_and_pickled(url: str) -> None:
    writer = pickle.loads(pickle.dumps(ThreeFSWriter(url)))  # noqa: S301
    for step in range(3):
        dcp.save({"step": torch.tensor(step)}, checkpoint_id=f"{url}/{step}", storage_writer=writer)
    for step in range(3):
        found = {"step": torch.tensor(-1)}
        dcp.load(found, checkpoint_id=f"{url}/{step}", storage_reader=ThreeFSReader(url))
        assert found["step"] == step
    assert ThreeFSWriter.validate_checkpoint_id(url) and not ThreeFSWriter.validate_checkpoint_id("/a")
    with pytest.raises(InvalidArgument, match="staging_bytes must be at least 1"):
        ThreeFSWriter(url, staging_bytes=0)


@pytest.mark.parametrize(
    ("saved", "loads"),
    [
        ((2, "rows"), [(2, "columns"), (3, "rows"), (1, "copies")]),
        ((4, "grid"), [(3, "columns"), (4, "copied rows")]),
        ((2, "copies"), [(2, "rows")]),
    ],
)
def test_other_ranks_and_placements_load_it(url: str, saved: tuple[int, str], loads: list[tuple[int, str]]) -> None:
    run_ranks(saved[0], states.save_distributed, url, saved[1])
    for world, placement in loads:
        assert run_ranks(world, states.load_distributed, url, placement) == [True] * world


def test_ranks_that_do_not_coordinate(url: str) -> None:
    assert run_ranks(2, states.save_each_its_own, url) == [True, True]


def test_cached_plans(url: str) -> None:
    assert run_ranks(2, states.save_with_cached_plans, url) == [[True] * 3] * 2


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_saves_in_the_background(url: str, kind: str) -> None:
    assert run_ranks(2, states.save_in_background, url, kind) == [True, True]


def test_a_rank_that_fails_fails_the_save_of_all(url: str, path: str, fs: FileSystem) -> None:
    outcomes = run_ranks(2, states.save_with_a_failing_rank, url)
    assert all("the device is lost" in outcome for outcome in outcomes)
    assert ".metadata.json" not in files(fs, path)


def test_the_writer_and_reader_of_torch_over_fsspec(url: str) -> None:
    assert run_ranks(2, states.save_by_fsspec, url) == [True, True]
