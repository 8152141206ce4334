"""Runs the demonstration from the start of a cluster to its end."""

import sysconfig
from collections.abc import Callable
from pathlib import Path

import threefs_client
import uvloop

from threefs.env import loopback
from threefs.errors import ThreefsError
from threefs_cli import output
from threefs_cli.cluster_file import Plan
from threefs_cli.demo import corpus, steps
from threefs_cli.demo.report import Report
from threefs_cli.local_cluster import LocalCluster

CHECKPOINT_BYTES = 512 << 20
_KILLED = "storage-2"
_LOOPBACK_S = 1.0
_TIMEOUT_S = 60.0

Progress = Callable[[str], None]


def run(directory: Path, progress: Progress, *, checkpoint_bytes: int = CHECKPOINT_BYTES) -> Report:
    """Run all steps on a new cluster in `directory`. The first step that fails ends the run; the report names it."""
    report = Report()
    cluster = LocalCluster(directory)
    try:
        _run(report, cluster, progress, checkpoint_bytes)
    except ThreefsError as error:
        step = report.steps[-1] if report.steps else report.begin("demo")
        step.check(str(error), False)
    finally:
        uvloop.run(cluster.down())
    return report


def _run(report: Report, cluster: LocalCluster, progress: Progress, checkpoint_bytes: int) -> None:
    progress("measuring raw sockets on loopback")
    report.loopback_bytes_per_s = loopback.raw_rate(unix=False, seconds=_LOOPBACK_S)
    progress(f"raw loopback: {output.size(report.loopback_bytes_per_s)}/s")
    step = report.begin("start a cluster")
    with report.timed(step):
        state = uvloop.run(cluster.up(Plan(storage=3, replicas=3)))
    step.things = "3 storage processes, 3 replicas"
    step.check("all programs run", len(cluster.running()) == len(state.programs))
    files = corpus.standard_library()
    samples = corpus.tokens(files)
    arrays = steps.make_arrays(checkpoint_bytes)
    with threefs_client.connect(state.address, timeout_s=_TIMEOUT_S) as fs:
        progress(f"copying the standard library of Python in: {len(files)} files")
        steps.copy_in(report, fs, sysconfig.get_paths()["stdlib"], files)
        progress("reading it back")
        steps.read_back(report, fs, files, "read files back")
        progress("packing it into a dataset of tokens")
        steps.pack_dataset(report, fs, samples)
        progress(f"reading a shuffled epoch with {steps.WORKERS} worker processes")
        steps.read_epoch(report, fs, samples, "read shuffled epoch", steps.WORKERS)
        progress(f"writing and loading a checkpoint of {output.size(checkpoint_bytes)}")
        steps.save_checkpoint(report, fs, arrays)
        steps.load_checkpoint(report, fs, arrays, "load checkpoint")
        progress(f"killing {_KILLED} with SIGKILL, and reading everything again")
        _kill(report, cluster)
        steps.read_back(report, fs, files, "read files, 2 of 3 left")
        steps.read_epoch(report, fs, samples, "read epoch, 2 of 3 left", 0)
        steps.load_checkpoint(report, fs, arrays, "load checkpoint, 2 of 3 left")


def _kill(report: Report, cluster: LocalCluster) -> None:
    step = report.begin("kill a storage process")
    with report.timed(step):
        uvloop.run(cluster.kill(_KILLED))
    step.things = _KILLED
    names = {program.name for program in cluster.running()}
    step.check(f"{_KILLED} is gone, the others run", _KILLED not in names and len(names) == 4)
