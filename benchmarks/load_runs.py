"""Runs a job by fio or by `threefs bench`, which have the same options and the same JSON."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from threefs_bench.cost_meter import process_cpu_s

from benchmarks.measurements import Sample

_TIMEOUT_S = 900.0
_REASON_CHARS = 500


def has_fio() -> bool:
    return shutil.which("fio") is not None


class CpuMeter:
    """CPU seconds of processes that run on: of services, or of a mount."""

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes

    def now_s(self) -> float:
        return sum(map(process_cpu_s, self._processes))


_FIO = ("fio", "--output-format=json")
_THREEFS_BENCH = (sys.executable, "-m", "threefs_bench.load.command", "--eta=never", "--json")


def fio(options: Sequence[str], *, servers: CpuMeter | None = None) -> Sample:
    """A job on a directory; in bytes. Its CPU is that of fio and of the servers behind the directory."""
    return _run([*_FIO, *options], servers)


def fio_report(options: Sequence[str]) -> dict[str, Any]:
    return _report([*_FIO, *options])


def threefs_bench(options: Sequence[str], *, servers: CpuMeter | None = None) -> Sample:
    """In bytes. Without `servers` the CPU is that of the job and of the services of its cluster."""
    return _run([*_THREEFS_BENCH, *options], servers)


def threefs_bench_report(options: Sequence[str]) -> dict[str, Any]:
    return _report([*_THREEFS_BENCH, *options])


def posix_job(directory: Path, options: Sequence[str], *, servers: CpuMeter | None = None) -> Sample:
    """On any directory, by fio if it is installed: it costs less CPU."""
    if has_fio():
        return fio(["--ioengine=psync", f"--directory={directory}", *options], servers=servers)
    return threefs_bench(["--ioengine=posix", f"--directory={directory}", *options], servers=servers)


def operations(sample: Sample, length: int) -> Sample:
    """The same, counted in blocks."""
    return replace(sample, amount=sample.amount / length)


def _run(command: Sequence[str], servers: CpuMeter | None) -> Sample:
    before_s = servers.now_s() if servers is not None else 0.0
    found = _report(command)
    return sample_of(found, servers.now_s() - before_s if servers is not None else None)


def _report(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-_REASON_CHARS:]}")
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def sample_of(report: dict[str, Any], servers_s: float | None) -> Sample:
    """Of the first job of a report. `servers_s` is the CPU time of the servers, if the report does not have it."""
    job = report["jobs"][0]
    if job["error"]:
        raise OSError(f"job {job['jobname']}: error {job['error']} {job.get('threefs', {}).get('error', '')}")
    side = max((job[name] for name in ("read", "write")), key=lambda one: one["io_bytes"])
    # Percentages are of the time of all processes of the job, in ms.
    own_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    if servers_s is None:
        servers_s = report.get("services", {}).get("all", {}).get("cpu_s", 0.0)
    peak_bytes = job.get("threefs", {}).get("peak_bytes", 0)
    return Sample(side["io_bytes"], side["runtime"] / 1000, own_s + servers_s, peak_bytes)
