"""The report for people, with the lines that fio's has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from threefs_bench.load.fio_report import Entry, direction_json, job_json, services_json
from threefs_bench.load.values import shown_size

_PER_LINE = 4
_TIMES = ((10**9 * 10, "sec", 10**9), (10**6 * 10, "msec", 10**6), (10**3 * 10, "usec", 10**3))


def lines(entries: Sequence[Entry], services: Iterable[Mapping[str, float]]) -> Iterator[str]:
    for entry in entries:
        yield from _entry(entry)
    yield from _groups(entries)
    for role, found in services_json(entries, services).items():
        yield f"  services on this host, {role}: {_cost(found)}"


def _entry(entry: Entry) -> Iterator[str]:
    found = job_json(entry, bins=False)
    where = f"<{entry.host}> " if entry.host else ""
    error = f" ({found['threefs']['error']})" if found["error"] else ""
    yield f"{where}{entry.job.name}: (groupid={entry.group}, jobs={entry.processes}): err={found['error']:2}{error}"
    for name in ("read", "write"):
        if found[name]["total_ios"]:
            yield from _direction(name, found[name])
    kinds = found["threefs"]["kinds"]
    if entry.job.engine == "meta":
        for kind, one in kinds.items():
            yield f"  {kind}: {one['iops']:,.0f}/s, {_spread(one['clat_ns'])}"
    if found["sync"]["total_ios"]:
        yield f"  sync: {found['sync']['total_ios']:,}, {_spread(found['sync']['lat_ns'])}"
    yield (
        f"  cpu          : usr={found['usr_cpu']:.2f}%, sys={found['sys_cpu']:.2f}%, ctx={found['ctx']}, "
        f"majf={found['majf']}, minf={found['minf']}"
    )
    yield f"  cost         : {_cost(found['threefs'])}"
    yield ""


def _direction(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    rate = f"BW={shown_size(found['bw_bytes'])}/s ({found['bw_bytes'] / 1e6:.1f}MB/s)"
    amount = f"({shown_size(found['io_bytes'])}/{found['runtime']}msec)"
    yield f"  {name}: IOPS={_short(found['iops'])}, {rate}{amount}"
    clat = found["clat_ns"]
    unit, scale = _unit(clat["mean"])
    yield f"    clat ({unit}): {_moments(clat, scale)}"
    yield f"    clat percentiles ({unit}):"
    shown = [f"{float(at):5.2f}th=[{value / scale:8.1f}]" for at, value in clat["percentile"].items()]
    for begin in range(0, len(shown), _PER_LINE):
        end = "," if begin + _PER_LINE < len(shown) else ""
        yield f"     | {', '.join(shown[begin : begin + _PER_LINE])}{end}"
    if found["short_ios"]:
        yield f"    short: {found['short_ios']} transferred less than they should"
    if found["bw_samples"]:
        yield (
            f"   bw (  KiB/s): min={found['bw_min']}, max={found['bw_max']}, avg={found['bw_mean']:.2f}, "
            f"stdev={found['bw_dev']:.2f}, samples={found['bw_samples']}"
        )
        yield (
            f"   iops        : min={found['iops_min']}, max={found['iops_max']}, avg={found['iops_mean']:.2f}, "
            f"stdev={found['iops_stddev']:.2f}, samples={found['iops_samples']}"
        )


def _groups(entries: Sequence[Entry]) -> Iterator[str]:
    for group in sorted({entry.group for entry in entries}):
        members = [entry for entry in entries if entry.group == group]
        yield f"Run status group {group} (all jobs):"
        for name in ("read", "write"):
            found = [one for e in members if (one := direction_json(e.result, name, bins=False))["total_ios"]]
            if not found:
                continue
            moved, operations = sum(one["io_bytes"] for one in found), sum(one["iops"] for one in found)
            rate = sum(one["bw_bytes"] for one in found)
            shortest, longest = min(one["runtime"] for one in found), max(one["runtime"] for one in found)
            yield (
                f"  {name.upper():>5}: bw={shown_size(rate)}/s ({rate / 1e6:.1f}MB/s), iops={_short(operations)}, "
                f"io={shown_size(moved)}, run={shortest}-{longest}msec"
            )


def _spread(found: Mapping[str, Any]) -> str:
    unit, scale = _unit(found["mean"])
    high = found.get("percentile", {}).get("99.000000", 0)
    return f"lat ({unit}): {_moments(found, scale)}, 99th={high / scale:.1f}"


def _moments(found: Mapping[str, Any], scale: int) -> str:
    least, most = found["min"] / scale, found["max"] / scale
    return f"min={least:.1f}, max={most:.1f}, avg={found['mean'] / scale:.2f}, stdev={found['stddev'] / scale:.2f}"


def _unit(value_ns: float) -> tuple[str, int]:
    """The unit in which a latency has at least two digits."""
    return next(((name, scale) for limit, name, scale in _TIMES if value_ns >= limit), ("nsec", 1))


def _short(count: float) -> str:
    return f"{count / 1000:.1f}k" if count >= 10_000 else f"{count:.0f}"


def _cost(found: Mapping[str, float]) -> str:
    per_gib = f", {found['cpu_s_per_gib']:.2f} per GiB" if found["cpu_s_per_gib"] else ""
    return f"{found['cpu_s']:.2f} CPU seconds{per_gib}, {found['cpu_s_per_1000']:.3f} per 1000 operations"
