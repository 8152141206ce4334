"""The work of the processes of a job: counts and latencies, which can be merged, and sent as JSON."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from threefs.errors import InvalidArgument

#: fio's own histograms end here, and its tools read no longer latencies: those count as this one (17.1 s). The longest
#: one is kept exactly beside them.
LONGEST_NS = 17_112_760_320
_DIGITS = 3
_WAITING = 4096  # latencies that are recorded at a time
_KEPT_BITS = 12  # more than the histogram tells apart
_MAX_KINDS = 16
_MAX_COUNTERS = 64
_MAX_COUNT = 1 << 62
#: Kinds that are no part of the load itself: its syncs, and the reads after it that check what was written.
NOT_MEASURED = frozenset(("sync", "verify"))


class Latencies:
    """In nanoseconds: how many, sum, sum of squares, least and greatest exactly; percentiles by three digits."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.squares = 0.0
        self.min_ns = 0
        self.max_ns = 0
        self._histogram: Any = None

    def add(self, values_ns: "list[int] | np.ndarray[Any, np.dtype[np.int64]]", times: int = 1) -> None:
        """Count each of `values_ns` `times` times."""
        values = np.asarray(values_ns, dtype=np.int64)
        if not len(values):
            return
        self._widen(int(values.min()), int(values.max()))
        self.count += len(values) * times
        self.total_ns += int(values.sum()) * times
        self.squares += float((values.astype(np.float64) ** 2).sum()) * times
        # Few values are different by the digits that are kept, and only those are recorded one by one.
        shift = np.maximum(np.frexp(values.astype(np.float64))[1] - _KEPT_BITS, 0)
        for value, count in zip(*np.unique(values >> shift << shift, return_counts=True), strict=True):
            self._record(int(value), int(count) * times)

    def _widen(self, least: int, greatest: int) -> None:
        self.min_ns = min(self.min_ns, least) if self.count else least
        self.max_ns = max(self.max_ns, greatest)

    def _record(self, value_ns: int, count: int) -> None:
        if self._histogram is None:
            self._histogram = HdrHistogram(1, LONGEST_NS, _DIGITS)
        self._histogram.record_value(min(value_ns, LONGEST_NS), count)

    def merge(self, other: "Latencies") -> None:
        if not other.count:
            return
        self._widen(other.min_ns, other.max_ns)
        self.count += other.count
        self.total_ns += other.total_ns
        self.squares += other.squares
        for value, count in other.bins().items():
            self._record(value, count)

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count if self.count else 0.0

    @property
    def deviation_ns(self) -> float:
        """Standard deviation of the population, as fio has it (of a sample: divided by one less)."""
        if self.count < 2:
            return 0.0
        variance = (self.squares - self.count * self.mean_ns**2) / (self.count - 1)
        return math.sqrt(max(variance, 0.0))

    def percentiles(self, wanted: Iterable[float]) -> dict[float, int]:
        if self._histogram is None:
            return dict.fromkeys(wanted, 0)
        indexes, counts = self._recorded()
        below = np.cumsum(counts)
        found = {}
        for at in wanted:
            place = int(np.searchsorted(below, self._histogram.get_target_count_at_percentile(at)))
            lowest = self._histogram.get_value_from_index(int(indexes[place]))
            highest = int(self._histogram.get_highest_equivalent_value(lowest))
            found[at] = max(self.min_ns, min(highest, self.max_ns))
        return found

    def bins(self) -> dict[int, int]:
        """Latency -> how many had it, in the resolution of the histogram."""
        if self._histogram is None:
            return {}
        return {
            min(int(self._histogram.get_value_from_index(int(index))), LONGEST_NS): int(count)
            for index, count in zip(*self._recorded(), strict=True)
        }

    def _recorded(self) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
        """(indexes, counts) of the buckets that are not empty. The library's iterators visit all 33,000."""
        counts = np.frombuffer(self._histogram.counts, np.uint64)
        indexes = np.flatnonzero(counts)
        return indexes, counts[indexes]

    def as_json(self) -> dict[str, Any]:
        return {
            "total_ns": self.total_ns,
            "squares": self.squares,
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
            "bins": [[value, count] for value, count in self.bins().items()],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Latencies":
        """Raises KeyError, TypeError, ValueError: `Result.from_json` names them."""
        made = cls()
        for value, count in found["bins"]:
            _check(isinstance(value, int) and isinstance(count, int) and value >= 0 and 0 < count < _MAX_COUNT)
            made._record(value, count)
            made.count += count
        made.total_ns, made.squares = int(found["total_ns"]), float(found["squares"])
        made.min_ns, made.max_ns = int(found["min_ns"]), int(found["max_ns"])
        return made


@dataclass
class Kind:
    """Operations of one kind: read, write, sync, verify, or one of names."""

    operations: int = 0
    bytes: int = 0
    short: int = 0  # that transferred less than they should
    latencies: Latencies = field(default_factory=Latencies)

    def merge(self, other: "Kind") -> None:
        self.operations += other.operations
        self.bytes += other.bytes
        self.short += other.short
        self.latencies.merge(other.latencies)


class Tally:
    """The work of one slot, counted as it goes: nothing that began before `begin_s`, which is the end of the ramp."""

    def __init__(self, begin_s: float = 0.0) -> None:
        self.begin_s = begin_s
        self.kinds: dict[str, Kind] = {}
        self.last_s = 0.0
        self.done = 0  # operations, with those of the ramp
        self._waiting: dict[str, list[int]] = {}

    def add(self, kind: str, began_s: float, ended_s: float, operations: int, transferred: int) -> None:
        """`operations` of one call, which took the same time each."""
        self.done += operations
        if began_s < self.begin_s:
            return
        found = self.kinds.get(kind)
        if found is None:
            found = self.kinds[kind] = Kind()
            self._waiting[kind] = []
        found.operations += operations
        found.bytes += transferred
        self.last_s = ended_s
        took_ns = int((ended_s - began_s) * 1e9)
        if operations != 1:
            found.latencies.add([took_ns], operations)
            return
        waiting = self._waiting[kind]
        waiting.append(took_ns)
        if len(waiting) >= _WAITING:
            found.latencies.add(waiting)
            waiting.clear()

    def short(self, kind: str, began_s: float, operations: int = 1) -> None:
        """So many of the operations that were added last had less than all bytes."""
        if began_s >= self.begin_s:
            self.kinds[kind].short += operations

    def settle(self) -> None:
        """Record the latencies that wait. Afterwards the tally is complete."""
        for kind, waiting in self._waiting.items():
            self.kinds[kind].latencies.add(waiting)
            waiting.clear()


@dataclass
class Spread:
    """Rates of intervals: how many intervals, sum, sum of squares, least and greatest."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    least: float = 0.0
    greatest: float = 0.0

    def add(self, value: float) -> None:
        self.least = min(self.least, value) if self.count else value
        self.greatest = max(self.greatest, value)
        self.count += 1
        self.total += value
        self.squares += value * value

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Spread":
        """Raises KeyError, TypeError, ValueError: `Result.from_json` names them."""
        rest = [float(found[name]) for name in ("total", "squares", "least", "greatest")]
        return cls(int(found["count"]), *rest)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        if self.count < 2:
            return 0.0
        return math.sqrt(max((self.squares - self.count * self.mean**2) / (self.count - 1), 0.0))


@dataclass
class Result:
    """Of one process, or of several together."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    runtime_ms: float = 0.0
    verify_ms: float = 0.0
    process_ms: float = 0.0  # run times of all processes together
    user_s: float = 0.0
    system_s: float = 0.0
    switches: int = 0
    major_faults: int = 0
    minor_faults: int = 0
    peak_bytes: int = 0  # the most memory that one process had in RAM
    bandwidth: dict[str, Spread] = field(default_factory=dict)  # KiB/s of intervals, by kind
    rates: dict[str, Spread] = field(default_factory=dict)  # operations/s of intervals, by kind
    grants: dict[str, float] = field(default_factory=dict)  # counters of request-to-send, by name
    errno: int = 0
    error: str = ""  # the first one, in words

    @property
    def operations(self) -> int:
        return sum(kind.operations for name, kind in self.kinds.items() if name not in NOT_MEASURED)

    @property
    def bytes(self) -> int:
        return sum(kind.bytes for name, kind in self.kinds.items() if name not in NOT_MEASURED)

    def add_tally(self, tally: Tally) -> None:
        tally.settle()
        for name, kind in tally.kinds.items():
            self.kinds.setdefault(name, Kind()).merge(kind)

    def merge(self, other: "Result") -> None:
        for name, kind in other.kinds.items():
            self.kinds.setdefault(name, Kind()).merge(kind)
        self.runtime_ms = max(self.runtime_ms, other.runtime_ms)
        self.verify_ms = max(self.verify_ms, other.verify_ms)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        for name in ("process_ms", "user_s", "system_s", "switches", "major_faults", "minor_faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.bandwidth, other.bandwidth), (self.rates, other.rates)):
            for name, spread in theirs.items():
                mine[name] = _together(mine.get(name), spread)
        for name, count in other.grants.items():
            self.grants[name] = self.grants.get(name, 0) + count
        if not self.errno:
            self.errno, self.error = other.errno, other.error

    def as_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name not in ("kinds", "bandwidth", "rates")}
        kinds = {
            name: {
                "operations": kind.operations,
                "bytes": kind.bytes,
                "short": kind.short,
                "latencies": kind.latencies.as_json(),
            }
            for name, kind in self.kinds.items()
        }
        spreads = {
            name: {kind: asdict(spread) for kind, spread in getattr(self, name).items()}
            for name in ("bandwidth", "rates")
        }
        return {**plain, **spreads, "kinds": kinds}

    @classmethod
    def from_json(cls, found: Any) -> "Result":
        """Raises InvalidArgument for what is not a result."""
        try:
            made = cls()
            _check(len(found["kinds"]) <= _MAX_KINDS)
            for name, kind in found["kinds"].items():
                made.kinds[str(name)] = Kind(
                    int(kind["operations"]),
                    int(kind["bytes"]),
                    int(kind["short"]),
                    Latencies.from_json(kind["latencies"]),
                )
            for name in ("bandwidth", "rates"):
                setattr(made, name, {str(kind): Spread.from_json(spread) for kind, spread in found[name].items()})
            for name in ("runtime_ms", "verify_ms", "process_ms", "user_s", "system_s"):
                setattr(made, name, float(found[name]))
            for name in ("switches", "major_faults", "minor_faults", "peak_bytes", "errno"):
                setattr(made, name, int(found[name]))
            _check(len(found["grants"]) <= _MAX_COUNTERS)
            made.grants = {str(name): float(count) for name, count in found["grants"].items()}
            made.error = str(found["error"])
            _check(all(kind.operations >= 0 and kind.bytes >= 0 for kind in made.kinds.values()))
            return made
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InvalidArgument(f"this is not the result of a job: {type(error).__name__} {error}") from None


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError("a value is out of its range")


def _together(one: Spread | None, other: Spread) -> Spread:
    """Of processes side by side: their rates add up, as fio does it."""
    if one is None or not one.count:
        return other
    if not other.count:
        return one
    count = min(one.count, other.count)
    mean, deviation = one.mean + other.mean, one.deviation + other.deviation
    squares = count * mean**2 + deviation**2 * max(count - 1, 0)
    return Spread(count, count * mean, squares, one.least + other.least, one.greatest + other.greatest)
