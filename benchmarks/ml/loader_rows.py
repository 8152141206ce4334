"""Loaders that read the same samples from one cluster in turns: ours, the load generator, and others over a mount."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import threefs_client
from threefs_bench.mount_comparison import mounted

from benchmarks.load_runs import threefs_bench
from benchmarks.measurements import LeftOutError, Load, Measurements, Sample
from benchmarks.ml import sample_readers, sample_sets
from benchmarks.ml.run_plan import SAMPLE_SETS, Round, SampleSet
from benchmarks.ml.sample_readers import FLAT_NAME, Plan
from benchmarks.testbed import Testbed, testbed
from tests.harness.mounts import lacking

#: Processes of each reader, and of the load generator.
WORKERS = 2
#: Batches that a process of the loader, or of the load generator, has in flight.
_CALLS = 2
_TIMEOUT_S = 300.0
_REASON_CHARS = 300

GENERATOR, LOADER = "load_generator", "loader"
#: Readers over a mount: what they need, and how it is installed.
OVER_MOUNT = {
    "dataloader": (("torch",), "make ml-venv"),
    "webdataset": (("torch", "webdataset"), "make ml-venv"),
    "mosaic": (
        ("streaming",),
        "make mosaic-venv, then MOSAIC=build/mosaic/bin/python: it does not install beside ours",
    ),
}
_WORDS = {
    LOADER: "threefs_data.Loader",
    "dataloader": "PyTorch's DataLoader over the mount, a file of all samples",
    "webdataset": "WebDataset over the mount, tar files",
    "mosaic": "Mosaic's StreamingDataset over the mount, MDS",
}


def load_of(reader: str, sizes: SampleSet) -> Load:
    what = _WORDS.get(reader, f"threefs bench, random blocks, {WORKERS} processes with {_CALLS} calls each")
    check = "each sample is whole, and comes once in an epoch" if reader in _WORDS else ""
    return Load(f"{reader}_{sizes.name}", f"{what}: {sizes.batch} samples of {sizes.name} in a batch", check)


def measure(plan: Round, found: Measurements) -> None:
    """One round of all readers at all sizes; every second one turns the order round."""
    able = _able(plan, found)
    with testbed(plan.scratch) as bed:
        for sizes in SAMPLE_SETS:
            count = int(plan.size.set_bytes * sizes.share) // sizes.sample_bytes
            with threefs_client.connect(bed.address) as fs:
                sample_sets.write(fs, f"/{sizes.name}", count, sizes.sample_bytes)
            readers = [GENERATOR, LOADER, *able]
            for reader in readers if plan.number % 2 else reversed(readers):
                plan.tell(f"{reader}, samples of {sizes.name}")
                try:
                    found.add(load_of(reader, sizes), _sample(plan, bed, reader, sizes, count))
                except OSError as error:
                    if reader not in OVER_MOUNT:
                        raise
                    found.left_out[f"{reader}_{sizes.name}"] = str(error)
            with threefs_client.connect(bed.address) as fs:
                fs.remove(f"/{sizes.name}", recursive=True)
        bed.note_memory(found)


def _able(plan: Round, found: Measurements) -> list[str]:
    """The readers over a mount that this machine can measure. Of the others, why not."""
    able = []
    for reader, (modules, how) in OVER_MOUNT.items():
        if reader not in plan.beside:
            continue
        try:
            if reason := lacking():
                raise LeftOutError(reason)
            look = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {modules})))"
            if subprocess.run([_python(plan, reader), "-c", look]).returncode:
                raise LeftOutError(f"not installed ({how})")
            able.append(reader)
        except LeftOutError as error:
            found.left_out[reader] = str(error)
    return able


def _python(plan: Round, reader: str) -> str:
    return plan.mosaic_python if reader == "mosaic" else sys.executable


def _sample(plan: Round, bed: Testbed, reader: str, sizes: SampleSet, count: int) -> Sample:
    if reader == GENERATOR:
        return _generate(plan, bed, sizes, count)
    place = f"/{sizes.name}"
    chosen = Plan(
        kind=reader,
        place=place,
        address=bed.address,
        samples=count,
        sample_bytes=sizes.sample_bytes,
        batch=sizes.batch,
        workers=WORKERS,
        seconds=plan.size.seconds,
        processes=list(bed.processes.values()),
    )
    if reader == LOADER:
        return _read(sys.executable, chosen)
    point = bed.place / f"mnt-{reader}-{sizes.name}"
    with mounted(bed.address, point) as process:  # new, so the kernel knows nothing of the files
        processes = [*chosen.processes, process]
        found = _read(_python(plan, reader), replace(chosen, place=f"{point}{place}", processes=processes))
    point.rmdir()
    return found


def _read(python: str, plan: Plan) -> Sample:
    command = [python, str(Path(sample_readers.__file__)), json.dumps(asdict(plan))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("measured ")]
    if done.returncode or not lines:
        raise OSError(f"{plan.kind}: {done.stderr.strip()[-_REASON_CHARS:]}")
    figures = json.loads(lines[-1].removeprefix("measured "))
    return Sample(figures["bytes"], figures["seconds"], figures["cpu_s"])


def _generate(plan: Round, bed: Testbed, sizes: SampleSet, count: int) -> Sample:
    milliseconds = round(plan.size.seconds * 1000)
    where = ["--name=generator", "--ioengine=native", f"--address={bed.address}", f"--directory=/{sizes.name}"]
    file = [f"--filename={FLAT_NAME}", f"--filesize={count * sizes.sample_bytes}"]
    shape = ["--rw=randread", f"--bs={sizes.sample_bytes}", f"--batch={sizes.batch}"]
    depth = [f"--iodepth={sizes.batch * _CALLS}", f"--numjobs={WORKERS}"]
    time = ["--time_based", f"--runtime={milliseconds}ms", f"--ramp_time={milliseconds // 4}ms"]
    return threefs_bench([*where, *file, *shape, *depth, *time])
