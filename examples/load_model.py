"""Loads one model into several inference processes: each byte is read from storage once, and passed on.

    python -m examples.load_model                # a model of 268 MB, 4 processes
    python -m examples.load_model --layers 1     # a smaller one

It starts a cluster of this machine, saves a model in bfloat16 as a safetensors file, and loads it twice in each
process: with the others (`threefs_torch.load_once`), and alone. It needs `pip install '.[torch]'`.
"""

import argparse
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import threefs_torch
import torch
import torch.distributed as dist
from threefs_checkpoint import LoadReport

from examples.train_moe import local_cluster

_WIDTH, _HIDDEN = 2048, 4096
PATH = "/models/example.safetensors"


class Outcome(NamedTuple):
    """Of one process."""

    read: int  # bytes from storage
    received: int  # bytes from other processes
    together_s: float
    alone_s: float
    answer: list[float]  # of the model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--layers", type=int, default=8, help="of 34 MB each")
    parser.add_argument("--dir", type=Path, help="make the temporary cluster below this directory")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # as in the processes: so the answers are equal, bit by bit
    with (
        tempfile.TemporaryDirectory(prefix="threefs-example-", dir=chosen.dir) as directory,
        local_cluster(Path(directory) / "cluster") as cluster,
    ):
        state = cluster.load()
        assert state is not None
        url = state.address + PATH
        tensors = make_model(chosen.layers)
        file_bytes = threefs_torch.save_file(tensors, url, {"format": "pt"})
        print(f"a model of {file_bytes:,} bytes is saved as {PATH}")
        outcomes = run_processes(chosen.processes, url, Path(directory) / "meeting")
        show(outcomes, file_bytes)
        check(outcomes, file_bytes, infer(tensors))


def make_model(layers: int) -> dict[str, Any]:
    numbers = torch.Generator().manual_seed(1)
    shapes = {"up": (_HIDDEN, _WIDTH), "down": (_WIDTH, _HIDDEN)}
    return {
        f"layers.{layer}.{name}": (torch.randn(shape, generator=numbers) * shape[1] ** -0.5).to(torch.bfloat16)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def infer(tensors: dict[str, Any]) -> list[float]:
    """The answer of the model to one request."""
    stream = torch.linspace(-1, 1, _WIDTH).to(torch.bfloat16)
    for layer in range(len(tensors) // 2):
        hidden = torch.relu(tensors[f"layers.{layer}.up"] @ stream)
        stream = stream + tensors[f"layers.{layer}.down"] @ hidden
    answer: list[float] = stream[:4].float().tolist()
    return answer


def run_processes(world: int, url: str, meeting: Path) -> list[Outcome]:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    processes = [
        context.Process(target=serve, args=(rank, world, url, str(meeting), pipe))
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for process, (_, ours) in zip(processes, pipes, strict=True):
        process.start()
        ours.close()
    try:
        return [pipe.recv() for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join()


def serve(rank: int, world: int, url: str, meeting: str, pipe: Connection) -> None:
    """An inference process: it loads the model and answers."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    report = LoadReport()
    dist.barrier()
    begin = time.perf_counter()
    tensors = threefs_torch.load_once(url, report=report)
    together = time.perf_counter() - begin
    answer = infer(tensors)
    del tensors
    dist.barrier()
    begin = time.perf_counter()
    tensors = threefs_torch.load_file(url)
    alone = time.perf_counter() - begin
    assert infer(tensors) == answer
    pipe.send(Outcome(report.bytes_read, report.bytes_received, together, alone, answer))
    dist.destroy_process_group()


def show(outcomes: list[Outcome], file_bytes: int) -> None:
    for rank, one in enumerate(outcomes):
        print(f"process {rank}: {one.read:,} bytes from storage, {one.received:,} from other processes")
    total = sum(one.read for one in outcomes)
    print(f"all together: {total:,} bytes from storage, {total / file_bytes:.2f} times the file")
    together, alone = (max(getattr(one, field) for one in outcomes) for field in ("together_s", "alone_s"))
    print(f"loaded in {together:.2f} s; in {alone:.2f} s when each process reads all of the file")


def check(outcomes: list[Outcome], file_bytes: int, answer: list[float]) -> None:
    """Each byte was read once, and all processes have the model that was saved."""
    if sum(one.read for one in outcomes) != file_bytes or any(one.answer != answer for one in outcomes):
        raise SystemExit("a byte was read twice or not at all, or a process has another model")
    print(f"{len(outcomes)} processes answer alike")


if __name__ == "__main__":
    main()
