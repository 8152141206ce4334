"""fio's JSON from what the processes of a run have done. Keys and units are fio's, so that its plotting tools read it.

bw is in KiB/s, bw_bytes in bytes/s, runtime and job_runtime in ms, latencies in ns, usr_cpu and sys_cpu in percent.
What fio does not have is in the objects `threefs` (of a job) and `services` (of the run).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from threefs import __version__
from threefs.errors import InvalidArgument
from threefs_bench.load import job_file
from threefs_bench.load.job import Job, group_ids
from threefs_bench.load.runner import Run
from threefs_bench.load.tally import NOT_MEASURED, Kind, Latencies, Result, Spread

PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)
#: Which kinds fio's directions are made of.
DIRECTIONS = {"read": ("read", "stat", "list"), "write": ("write", "create", "rename", "remove"), "trim": ()}
_GIB = 1 << 30
_DEPTHS = (1, 2, 4, 8, 16, 32)
_CALLS = (0, 4, 8, 16, 32, 64)
_STEPS = (2, 4, 10, 20, 50, 100, 250, 500, 750, 1000)


@dataclass
class Entry:
    """One entry of the report: a process, or with group_reporting all processes of a group."""

    job: Job
    group: int
    result: Result
    processes: int = 1
    host: str = ""

    def as_json(self) -> dict[str, Any]:
        job = {"given": dict(self.job.given), "inherited": dict(self.job.inherited)}
        return {"job": job, "group": self.group, "processes": self.processes, "result": self.result.as_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], host: str) -> "Entry":
        """Raises InvalidArgument."""
        try:
            job, group, processes = found["job"], int(found["group"]), int(found["processes"])
            return cls(job_file.from_json(job), group, Result.from_json(found["result"]), processes, host)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"this is not an entry of a report: {error}") from None


def entries(jobs: Sequence[Job], run: Run) -> list[Entry]:
    """In the order of the jobs. What never ran, because the run was stopped before, is left out."""
    found: list[Entry] = []
    for job, group, results in zip(jobs, group_ids(jobs), run.results, strict=True):
        for result in results:
            last = found[-1] if found else None
            if last is not None and last.group == group and job["group_reporting"] and last.job["group_reporting"]:
                last.result.merge(result)
                last.processes += 1
            else:
                merged = Result()
                merged.merge(result)
                found.append(Entry(job, group, merged))
    return found


def document(
    found: Sequence[Entry], services: Iterable[Mapping[str, float]], wall_ns: int, *, bins: bool, remote: bool = False
) -> dict[str, Any]:
    """The whole JSON. `bins` adds those of the histograms, as the format json+ has them."""
    seconds = wall_ns // 10**9
    jobs = [job_json(entry, bins=bins) for entry in found]
    head = {
        "fio version": f"threefs-bench-{__version__}",
        "timestamp": seconds,
        "timestamp_ms": wall_ns // 10**6,
        "time": datetime.fromtimestamp(seconds, UTC).strftime("%a %b %d %H:%M:%S %Y"),
        "global options": dict(found[0].job.inherited) if found else {},
    }
    clients = {"client_stats": jobs} if remote else {}
    return {**head, "jobs": jobs, **clients, "disk_util": [], "services": services_json(found, services)}


def job_json(entry: Entry, *, bins: bool) -> dict[str, Any]:
    result, job = entry.result, entry.job
    run_ms = max(result.process_ms, 1e-9)
    where = (
        {"hostname": entry.host.rpartition(":")[0], "port": int(entry.host.rpartition(":")[2])} if entry.host else {}
    )
    return {
        "jobname": job.name,
        "groupid": entry.group,
        "error": result.errno,
        "eta": 0,
        "elapsed": int(result.runtime_ms / 1000) + 1,
        "job options": dict(job.given),
        **where,
        **{name: direction_json(result, name, bins=bins) for name in DIRECTIONS},
        "sync": _sync_json(result, bins=bins),
        "job_runtime": round(result.process_ms),
        "usr_cpu": result.user_s * 1e5 / run_ms if result.process_ms else 0.0,
        "sys_cpu": result.system_s * 1e5 / run_ms if result.process_ms else 0.0,
        "ctx": result.switches,
        "majf": result.major_faults,
        "minf": result.minor_faults,
        "iodepth_level": _level(job.depth, _DEPTHS, ">=64"),
        "iodepth_submit": _level(job.batch, _CALLS, ">=64"),
        "iodepth_complete": _level(job.batch, _CALLS, ">=64"),
        **_latency_shares(result),
        "latency_depth": job.depth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "threefs": _own_json(entry),
    }


def direction(result: Result, name: str) -> Kind:
    """All kinds of operations that count as one direction of fio."""
    found = Kind()
    for kind in DIRECTIONS[name]:
        if kind in result.kinds:
            found.merge(result.kinds[kind])
    return found


def direction_json(result: Result, name: str, *, bins: bool) -> dict[str, Any]:
    kind, run_ms = direction(result, name), result.runtime_ms
    if name == "read" and not kind.operations and "verify" in result.kinds:  # as fio reports the reads of a write job
        kind, run_ms = result.kinds["verify"], result.verify_ms
    run_ms = max(run_ms, 1.0) if kind.operations else 0.0
    bytes_per_s = kind.bytes * 1000 / run_ms if run_ms else 0.0
    bandwidth, rates = _spread(result.bandwidth, name), _spread(result.rates, name)
    return {
        "io_bytes": kind.bytes,
        "io_kbytes": kind.bytes >> 10,
        "bw_bytes": int(bytes_per_s),
        "bw": int(bytes_per_s / 1024),
        "iops": kind.operations * 1000 / run_ms if run_ms else 0.0,
        "runtime": round(run_ms),
        "total_ios": kind.operations,
        "short_ios": kind.short,
        "drop_ios": 0,
        "slat_ns": _moments(Latencies()),
        "clat_ns": _latencies(kind.latencies, bins=bins),
        "lat_ns": _moments(kind.latencies),
        "bw_min": int(bandwidth.least),
        "bw_max": int(bandwidth.greatest),
        "bw_agg": 100.0 if bandwidth.count else 0.0,
        "bw_mean": bandwidth.mean,
        "bw_dev": bandwidth.deviation,
        "bw_samples": bandwidth.count,
        "iops_min": int(rates.least),
        "iops_max": int(rates.greatest),
        "iops_mean": rates.mean,
        "iops_stddev": rates.deviation,
        "iops_samples": rates.count,
    }


def _spread(spreads: Mapping[str, Spread], name: str) -> Spread:
    """Of the kind that was sampled most often, of this direction."""
    return max((spreads[kind] for kind in DIRECTIONS[name] if kind in spreads), key=lambda s: s.count, default=Spread())


def _moments(latencies: Latencies) -> dict[str, Any]:
    return {
        "min": latencies.min_ns,
        "max": latencies.max_ns,
        "mean": latencies.mean_ns,
        "stddev": latencies.deviation_ns,
        "N": latencies.count,
    }


def _latencies(latencies: Latencies, *, bins: bool) -> dict[str, Any]:
    found = _moments(latencies)
    if latencies.count:
        found["percentile"] = {f"{at:.6f}": value for at, value in latencies.percentiles(PERCENTILES).items()}
        if bins:
            found["bins"] = {str(value): count for value, count in latencies.bins().items()}
    return found


def _sync_json(result: Result, *, bins: bool) -> dict[str, Any]:
    kind = result.kinds.get("sync", Kind())
    return {"total_ios": kind.operations, "lat_ns": _latencies(kind.latencies, bins=bins)}


def _level(value: int, steps: Sequence[int], above: str) -> dict[str, float]:
    """All operations in the step that the value belongs to."""
    found = {str(step): 0.0 for step in steps} | {above: 0.0}
    if steps[0]:  # the largest step that is not above it
        found[above if value >= 2 * steps[-1] else str(max(step for step in steps if step <= value))] = 100.0
    else:  # the smallest one that is not below it
        found[next((str(step) for step in steps if step and value <= step), above)] = 100.0
    return found


def _latency_shares(result: Result) -> dict[str, dict[str, float]]:
    """Percentages of operations by latency, each below the limit that is its name and above the one before."""
    limits = [(unit, str(step), step * scale) for unit, scale in _UNITS for step in _STEPS]
    limits += [("latency_ms", "2000", 2 * 10**9)]
    found: dict[str, dict[str, float]] = {unit: {} for unit, _ in _UNITS}
    for unit, name, _ in limits:
        found[unit][name] = 0.0
    found["latency_ms"][">=2000"] = 0.0
    total = result.operations
    for kind, counted in result.kinds.items():
        if kind in NOT_MEASURED:
            continue
        for value, count in counted.latencies.bins().items():
            unit, name = next(((u, n) for u, n, limit in limits if value < limit), ("latency_ms", ">=2000"))
            found[unit][name] += 100.0 * count / total
    return found


_UNITS = (("latency_ns", 1), ("latency_us", 1000), ("latency_ms", 10**6))


def _own_json(entry: Entry) -> dict[str, Any]:
    """The part that fio does not have: the error in words, the cost, and each kind of operation by itself."""
    result = entry.result
    return {
        "error": result.error,
        "engine": entry.job.engine,
        "processes": entry.processes,
        "batch": entry.job.batch,
        **cost(result.user_s + result.system_s, result.bytes, result.operations),
        "peak_bytes": result.peak_bytes,
        "grants": result.grants,
        "kinds": {
            name: {
                "total_ios": kind.operations,
                "iops": kind.operations * 1000 / result.runtime_ms if result.runtime_ms else 0.0,
                "clat_ns": _latencies(kind.latencies, bins=False),
            }
            for name, kind in sorted(result.kinds.items())
        },
    }


def cost(cpu_s: float, transferred: int, operations: int) -> dict[str, float]:
    """CPU seconds in all, per GiB and per 1,000 operations. What was not done costs nothing."""
    return {
        "cpu_s": cpu_s,
        "cpu_s_per_gib": cpu_s * _GIB / transferred if transferred else 0.0,
        "cpu_s_per_1000": cpu_s * 1000 / operations if operations else 0.0,
    }


def services_json(found: Sequence[Entry], services: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """CPU of the services of the cluster that run on this host, over all phases of the run, by role and in sum."""
    by_role: dict[str, float] = {}
    for phase in services:
        for role, cpu_s in phase.items():
            by_role[role] = by_role.get(role, 0.0) + cpu_s
    if not by_role:
        return {}
    transferred, operations = sum(e.result.bytes for e in found), sum(e.result.operations for e in found)
    sums = {"all": sum(by_role.values()), **by_role}
    return {role: cost(cpu_s, transferred, operations) for role, cpu_s in sums.items()}
