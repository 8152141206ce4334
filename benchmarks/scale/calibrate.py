"""Measures on this machine what the model needs to know: a cluster's CPU for reads of two sizes over TCP, and fio."""

from pathlib import Path

from benchmarks import load_runs
from benchmarks.measurements import MIB, LeftOutError
from benchmarks.scale import calibration
from benchmarks.scale.calibration import Calibration
from benchmarks.testbed import testbed

_SMALL, _LARGE = 4096, MIB


TIMES = 3


def measure(scratch: Path, *, seconds: float, file_bytes: int) -> Calibration:
    """The best of several times, because what else the machine does only adds to the costs. Raises LeftOutError without
    fio."""
    return calibration.best([_measure(scratch, seconds, file_bytes) for _ in range(TIMES)])


def _measure(scratch: Path, seconds: float, file_bytes: int) -> Calibration:
    if not load_runs.has_fio():
        raise LeftOutError("fio is not installed: the disk cannot be measured")
    with testbed(scratch) as bed:
        small = _cpu_s(bed.address, _SMALL, seconds, file_bytes)
        large = _cpu_s(bed.address, _LARGE, seconds, file_bytes)
    (client_s, storage_s), (client_large_s, storage_large_s) = small, large
    client = calibration.line(_SMALL, client_s, _LARGE, client_large_s)
    storage = calibration.line(_SMALL, storage_s, _LARGE, storage_large_s)
    return Calibration(*storage, *client, *_disk(scratch / "disk", seconds, file_bytes))


def _cpu_s(address: str, size: int, seconds: float, file_bytes: int) -> tuple[float, float]:
    """CPU seconds of one read: of its client, of the storage services."""
    where = ["--name=calibrate", f"--address={address}", "--directory=/bench", "--unix_sockets=0"]
    shape = ["--rw=randread", f"--bs={size}", "--iodepth=16", f"--size={file_bytes}"]
    milliseconds = round(seconds * 1000)
    timed = ["--time_based", f"--runtime={milliseconds}ms", f"--ramp_time={milliseconds // 4}ms"]
    report = load_runs.threefs_bench_report([*where, *shape, *timed])
    own, services = report["jobs"][0]["threefs"], report["services"]
    return own["cpu_s_per_1000"] / 1000, services["storage"]["cpu_s_per_1000"] / 1000


def _disk(path: Path, seconds: float, file_bytes: int) -> tuple[float, float, float]:
    """(latency of a block beyond its transfer, its spread, bytes per second)."""
    shape = ["--name=disk", f"--filename={path}", f"--size={file_bytes}", "--rw=randread", "--bs=1M", "--direct=1"]
    timed = ["--time_based", f"--runtime={round(seconds * 1000)}ms"]
    try:
        alone = load_runs.fio_report([*shape, *timed, "--ioengine=psync"])
        busy = load_runs.fio_report([*shape, *timed, "--ioengine=libaio", "--iodepth=8"])
    finally:
        path.unlink(missing_ok=True)
    rate = float(busy["jobs"][0]["read"]["bw_bytes"])
    median_s, spread = calibration.latency_spread(alone)
    return max(0.0, median_s - MIB / rate), spread, rate
