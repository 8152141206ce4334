"""Ranks of torch.distributed in processes of their own, with gloo."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_TIMEOUT_S = 100.0


def run_ranks(world: int, work: Callable[..., Any], *args: Any) -> list[Any]:
    """What `work(*args)` returns on each rank. An error of a rank is an AssertionError with its traceback."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.checkpoint", "threefs_torch"])
    with tempfile.TemporaryDirectory() as meeting:
        pipes = [context.Pipe(duplex=False) for _ in range(world)]
        processes = [
            context.Process(target=_rank, args=(rank, world, f"{meeting}/store", pipes[rank][1], work, args))
            for rank in range(world)
        ]
        for process, (_, ours) in zip(processes, pipes, strict=True):
            process.start()
            ours.close()
        try:
            return [_outcome(rank, pipe) for rank, (pipe, _) in enumerate(pipes)]
        finally:
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
                    process.join()


def _outcome(rank: int, pipe: Connection) -> Any:
    assert pipe.poll(_TIMEOUT_S), f"rank {rank} did not end in {_TIMEOUT_S:g} s"
    try:
        failure, outcome = pipe.recv()
    except EOFError:
        raise AssertionError(f"rank {rank} died") from None
    assert failure is None, f"rank {rank}:\n{failure}"
    return outcome


def _rank(rank: int, world: int, store: str, pipe: Connection, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    import torch
    from torch import distributed

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    outcome: tuple[str | None, Any]
    try:
        outcome = (None, work(*args))
    except BaseException:
        outcome = (traceback.format_exc(), None)
    pipe.send(outcome)
    pipe.close()
    distributed.destroy_process_group()
