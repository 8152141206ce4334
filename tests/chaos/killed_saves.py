"""Kills a job at random points of its saves, again and again: a valid checkpoint is always there, never a wrong one.

`python -m tests.chaos.killed_saves --kills 200`
"""

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import threefs_client
from threefs_checkpoint.job_directory import CheckpointDirectory, read_index
from threefs_checkpoint.loading import load, wanted_of
from threefs_checkpoint.verification import verify

from tests.harness.cluster import LocalCluster
from tests.harness.saving_job import ROOT, content, job


def kill_once(address: str, dice: random.Random) -> int:
    """Run the job, kill it at a random time, and return the newest step that it has published."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.harness.saving_job"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=job, args=(address, theirs), daemon=True)
    process.start()
    theirs.close()
    newest = int(ours.recv_bytes().split()[1])
    began = time.monotonic()
    published = int(ours.recv_bytes().split()[1])  # so the time of a save on this machine is known
    save_s = time.monotonic() - began
    time.sleep(dice.uniform(0, 2 * save_s))
    process.kill()
    process.join()
    try:
        while True:
            published = int(ours.recv_bytes().split()[1])
    except EOFError:
        return max(newest, published)


def check(fs: threefs_client.FileSystem, least: int) -> str:
    """Every checkpoint is right, the newest is at least of the step that was published last. Returns what the killed
    save has left behind."""
    directory = CheckpointDirectory(fs, ROOT)
    published = directory.published()
    assert published and published[-1].step >= least, f"step {least} was published: {published}"
    assert len(published) <= 2, f"two slots have {published}"
    for each in published:
        index = read_index(fs, each.path)
        verify(fs, each.path, index)
        found = load(fs, each.path, index, wanted_of(index, None))
        assert index.step == each.step == found["step"], each
        assert (found["rows"] == content(each.step)).all(), each
        assert (found["head"] == content(each.step)[:3, ::2]).all(), each
    debris = [entry.name.partition("-")[0] for entry in fs.list(ROOT)]
    left = sorted(set(debris) & {"saving", "removing"})
    return f"{len(published)} published" + "".join(f", {name}" for name in left)


def run(cluster: LocalCluster, kills: int, seed: int) -> Counter[str]:
    """How often each kind of state was found behind a kill."""
    dice, found = random.Random(seed), Counter[str]()
    with cluster.connect() as fs:
        for _ in range(kills):
            least = kill_once(cluster.address, dice)
            found[check(fs, least)] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="threefs-kills-") as directory, LocalCluster(Path(directory)) as cluster:
        found = run(cluster, chosen.kills, chosen.seed)
    for state, count in found.most_common():
        sys.stdout.write(f"{count:5}  {state}\n")
    sys.stdout.write(f"{chosen.kills} kills: a valid checkpoint was there behind each, and no wrong one\n")


if __name__ == "__main__":
    main()
