"""The program of one rank: `python -m examples.moe.rank --help`. It goes on from the newest valid checkpoint."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from threefs_checkpoint import CheckpointManager, Every, ExitSignal
from threefs_checkpoint.torch_group import TorchGroup
from threefs_client import FileSystem
from threefs_data import Dataset, Loader

import threefs
from examples.moe.model import Shape
from examples.moe.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="of the cluster: threefs://HOST:PORT")
    parser.add_argument("--dataset", required=True, help="made by `threefs data prepare`")
    parser.add_argument("--checkpoints", required=True, help="directory of the job's checkpoints")
    parser.add_argument("--losses", type=Path, required=True, help="rank 0 adds a line for each step")
    parser.add_argument(
        "--meeting", type=Path, required=True, help="file by which the ranks find each other; a new one"
    )
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, required=True, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=32, help="sequences of all ranks together")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    with ExitSignal() as received:
        dist.init_process_group(
            "gloo", init_method=f"file://{chosen.meeting}", rank=chosen.rank, world_size=chosen.world
        )
        with threefs.connect(chosen.address) as fs:
            train(fs, chosen, received)
        dist.destroy_process_group()


def train(fs: FileSystem, chosen: argparse.Namespace, received: ExitSignal) -> None:
    dataset = Dataset(fs, chosen.dataset)
    trainer = Trainer(Shape(sequence=len(dataset[0])), seed=1)
    group = TorchGroup()
    manager = CheckpointManager(
        fs,
        chosen.checkpoints,
        group=group,
        every=Every(steps=chosen.every),
        model_every=Every(steps=4 * chosen.every),
        exit_signal=received,
    )
    with Loader(
        dataset, global_batch=chosen.batch, seed=1, rank=chosen.rank, world=chosen.world, drop_last=True
    ) as loader:
        found = manager.resume(trainer.wanted)
        if found is not None:
            trainer.restore(found.step, found.tensors)
            loader.load_state_dict(found.metadata["loader"])
        run(trainer, loader, manager, chosen)
    manager.close()
    group.close()


def run(trainer: Trainer, loader: Loader, manager: CheckpointManager, chosen: argparse.Namespace) -> None:
    """Until the last step, or until the scheduler ends the job."""
    while trainer.step < chosen.steps:
        for batch in loader:  # an epoch, or the rest of one
            loss = trainer.train(batch.tensor("uint8").long())
            if trainer.rank == 0:
                note(chosen.losses, {"step": trainer.step, "loss": loss.hex(), "ranks": trainer.world})
            metadata = {"loader": loader.state_dict()}
            outcome = manager.step(trainer.step, trainer.state, loss=loss, masters=trainer.masters, metadata=metadata)
            if outcome.should_exit or trainer.step >= chosen.steps:
                return


def note(path: Path, line: dict[str, object]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    main()
