"""Trains a small mixture-of-experts language model on a cluster of this machine: once undisturbed, and once while a
storage service and a rank are killed and the number of ranks changes. The two loss curves must be equal, bit by bit.

    python -m examples.train_moe                      # 4 ranks; some minutes
    python -m examples.train_moe --short              # 2 ranks, few steps

It needs `pip install '.[torch,bench]'`.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster

import threefs
from examples.moe import plot, text
from examples.moe.job import Job, Step, steps

DATASET = "/datasets/sums"
_SEQUENCE = 64


@dataclass(frozen=True, slots=True)
class Course:
    """What happens in the disturbed training, and after which step."""

    steps: int
    every: int  # steps between checkpoints
    ranks: int
    kill_storage: int
    kill_rank: int
    fewer_ranks: int  # with which training goes on
    announce_end: int | None  # the scheduler ends the job, which goes on with `ranks` again


LONG = Course(200, 10, 4, kill_storage=40, kill_rank=85, fewer_ranks=2, announce_end=130)
SHORT = Course(12, 3, 2, kill_storage=4, kill_rank=8, fewer_ranks=1, announce_end=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="2 ranks and 12 steps instead of 4 and 200")
    parser.add_argument("--plot", type=Path, default=Path("train_moe.svg"), help="picture of the loss curves")
    parser.add_argument("--dir", type=Path, help="make the temporary cluster below this directory")
    chosen = parser.parse_args()
    course = SHORT if chosen.short else LONG
    with tempfile.TemporaryDirectory(prefix="threefs-example-", dir=chosen.dir) as directory:
        undisturbed, disturbed = train_twice(Path(directory), course)
    plot.draw(chosen.plot, undisturbed, disturbed, events(course))
    print(f"the loss curves are in {chosen.plot}")
    check(undisturbed, disturbed)


def train_twice(directory: Path, course: Course) -> tuple[list[Step], list[Step]]:
    """The steps of the undisturbed and of the disturbed training."""
    with local_cluster(directory / "cluster") as cluster:
        address = prepare(cluster, directory)
        print(f"training {course.steps} steps on {course.ranks} ranks, undisturbed")
        job = start(directory, address, "undisturbed", course, course.ranks)
        job.wait()
        print(f"training again, on {course.ranks} ranks")
        disturb(cluster, directory, address, course)
    return steps(directory / "undisturbed.losses"), steps(directory / "disturbed.losses")


@contextmanager
def local_cluster(directory: Path) -> Iterator[LocalCluster]:
    """Three storage services, three copies of everything."""
    cluster = LocalCluster(directory)
    try:
        uvloop.run(cluster.up(Plan(storage=3, replicas=3)))
        yield cluster
    finally:
        uvloop.run(cluster.down())


def prepare(cluster: LocalCluster, directory: Path) -> str:
    """Make the dataset. Returns the address of the cluster."""
    (directory / "sums.txt").write_text(text.sums(6000, seed=1), encoding="utf-8")
    state = cluster.load()
    assert state is not None
    with threefs.connect(state.address) as fs:
        fs.mkdir("/datasets", parents=True)
    command = ["data", "prepare", str(directory / "sums.txt"), DATASET, "--documents", "files", "--workers", "1"]
    command += ["--sequence-length", str(_SEQUENCE), "--dir", str(cluster.directory)]
    print("threefs", *command)
    subprocess.run([sys.executable, "-m", "threefs_cli", *command], check=True, stdout=subprocess.DEVNULL)
    return state.address


def start(directory: Path, address: str, name: str, course: Course, world: int) -> Job:
    arguments = ["--address", address, "--dataset", DATASET, "--checkpoints", f"/checkpoints/{name}"]
    return Job(directory, name, world, [*arguments, "--steps", str(course.steps), "--every", str(course.every)])


def disturb(cluster: LocalCluster, directory: Path, address: str, course: Course) -> None:
    job = start(directory, address, "disturbed", course, course.ranks)
    job.wait_for_step(course.kill_storage)
    print(f"step {course.kill_storage}: killing storage-2; training goes on")
    uvloop.run(cluster.kill("storage-2"))
    job.wait_for_step(course.kill_rank)
    print(f"step {course.kill_rank}: killing a rank; the job ends, and is started again with {course.fewer_ranks}")
    job.kill_rank(course.ranks - 1)
    job = start(directory, address, "disturbed", course, course.fewer_ranks)
    if course.announce_end is not None:
        job.wait_for_step(course.announce_end)
        print(f"step {course.announce_end}: the scheduler ends the job, which is started again with {course.ranks}")
        job.announce_end()
        job = start(directory, address, "disturbed", course, course.ranks)
    job.wait()


def events(course: Course) -> dict[int, str]:
    found = {course.kill_storage: "a storage service is killed", course.kill_rank: "a rank is killed"}
    return found if course.announce_end is None else found | {course.announce_end: "the scheduler ends the job"}


def check(undisturbed: list[Step], disturbed: list[Step]) -> None:
    """Every loss of the disturbed training, also of steps that were made twice, is that of the undisturbed one."""
    wanted = {step.number: step.loss for step in undisturbed}
    different = [step for step in disturbed if step.loss != wanted[step.number]]
    missing = set(wanted) - {step.number for step in disturbed}
    if different or missing:
        sys.exit(f"the curves differ in {len(different)} steps, {len(missing)} are missing: {different[:1]}")
    ranks = sorted({step.ranks for step in disturbed})
    print(f"{len(disturbed)} steps on {ranks} ranks: each loss is that of the undisturbed training, bit by bit")
    print(f"the loss went from {undisturbed[0].loss:.3f} to {undisturbed[-1].loss:.3f}")


if __name__ == "__main__":
    main()
