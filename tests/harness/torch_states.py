"""State dictionaries for tests of distributed checkpoints, and what ranks do with them."""

from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from threefs_torch import ThreeFSReader, ThreeFSWriter
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

#: Of the tensors below.
SHAPE = (24, 36)


def state() -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(1)
    return {
        "model": {
            "weight": torch.randn(300, 517, generator=numbers),
            "half": torch.randn(33, generator=numbers).to(torch.bfloat16),
            "eighth": torch.randn(5, 5, generator=numbers).to(torch.float8_e4m3fn),
            "turned": torch.randn(40, 30, generator=numbers).t(),
            "every_second": torch.arange(100)[::2],
            "empty": torch.empty(0, 4),
            "flag": torch.tensor([True, False]),
            "complex": torch.randn(3, generator=numbers, dtype=torch.complex64).conj(),
        },
        "optimizer": {"step": torch.tensor(17), "groups": [{"lr": 0.1, "betas": (0.9, 0.99), "name": "ü"}, {"lr": 1}]},
    }


def blank(value: Any) -> Any:
    """The same structure, with zeros."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype)
    if isinstance(value, dict):
        return {key: blank(one) for key, one in value.items()}
    if isinstance(value, list):
        return [blank(one) for one in value]
    return None


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tolist() == right.tolist())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def placements(name: str) -> tuple[Any, ...]:
    return {
        "rows": (Shard(0),),
        "columns": (Shard(1),),
        "copies": (Replicate(),),
        "grid": (Shard(0), Shard(1)),
        "copied rows": (Replicate(), Shard(0)),
    }[name]


def tensor(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def distributed_tensor(whole: torch.Tensor, name: str) -> Any:
    """The tensor over all ranks."""
    world, wanted = distributed.get_world_size(), placements(name)
    mesh = init_device_mesh("cpu", (world,) if len(wanted) == 1 else (2, world // 2))
    return distribute_tensor(whole, mesh, wanted)


def save_distributed(url: str, name: str) -> None:
    dcp.save({"a": distributed_tensor(tensor(1), name), "b": tensor(2)}, storage_writer=ThreeFSWriter(url))


def load_distributed(url: str, name: str) -> bool:
    """Whether each rank has found what was saved."""
    found = {"a": distributed_tensor(torch.zeros(SHAPE), name), "b": torch.zeros(SHAPE)}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    return bool(torch.equal(found["a"].full_tensor(), tensor(1)) and torch.equal(found["b"], tensor(2)))


def save_each_its_own(url: str) -> bool:
    """Without coordination: each rank has its own checkpoint, and reads that."""
    rank = distributed.get_rank()
    dcp.save({"own": torch.full((3,), rank)}, storage_writer=ThreeFSWriter(url), use_collectives=False)
    found = {"own": torch.zeros(3, dtype=torch.int64)}
    dcp.load(found, storage_reader=ThreeFSReader(url))
    return bool(found["own"].tolist() == [rank] * 3)


def save_with_cached_plans(url: str) -> list[bool]:
    """Three saves by one planner's cache, of which the last has another shape."""
    outcomes = []
    for number, rows in enumerate([8, 8, 12]):
        whole = torch.randn(rows, 6, generator=torch.Generator().manual_seed(number))
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        writer = ThreeFSWriter(f"{url}/{number // 2}", overwrite=True)
        dcp.save({"a": distributed_tensor(whole, "rows")}, storage_writer=writer, planner=planner)
        found = {"a": distributed_tensor(torch.zeros(rows, 6), "rows")}
        dcp.load(found, storage_reader=ThreeFSReader(f"{url}/{number // 2}"))
        outcomes.append(torch.equal(found["a"].full_tensor(), whole))
    return outcomes


def save_in_background(url: str, kind: str) -> bool:
    """Training goes on, and changes the tensors, while they are saved."""
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    values = distributed_tensor(tensor(1), "rows")
    writer = ThreeFSWriter(url)
    saving = dcp.async_save(
        {"a": values, "b": tensor(2)}, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType(kind)
    )
    values.zero_()
    getattr(saving, "upload_completion", saving).result()
    return load_distributed(url, "columns")


class Failing(dcp.DefaultSavePlanner):
    """Its values cannot be had on one rank."""

    def resolve_data(self, write_item: Any) -> Any:
        if distributed.get_rank() == 1:
            raise RuntimeError("the device is lost")
        return super().resolve_data(write_item)


def save_with_a_failing_rank(url: str) -> str:
    try:
        dcp.save({"a": distributed_tensor(tensor(1), "rows")}, storage_writer=ThreeFSWriter(url), planner=Failing())
    except dcp.api.CheckpointException as error:
        return str(error)
    return "saved"


def save_by_fsspec(url: str) -> bool:
    """torch's own writer and reader over a threefs:// path."""
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    outcomes = []
    for number in (1, 2):  # the second time over the first
        dcp.save({"a": distributed_tensor(tensor(number), "rows"), "n": 3}, storage_writer=FsspecWriter(url))
        found = {"a": distributed_tensor(torch.zeros(SHAPE), "columns"), "n": 0}
        dcp.load(found, storage_reader=FsspecReader(url))
        outcomes.append(torch.equal(found["a"].full_tensor(), tensor(number)) and found["n"] == 3)
    dcp.save({"n": 4}, checkpoint_id=f"{url}/found")  # torch finds FsspecWriter by the URL
    dcp.load(found, checkpoint_id=f"{url}/found", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    return all(outcomes) and found["n"] == 4
