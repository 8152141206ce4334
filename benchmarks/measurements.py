"""What a run has measured: samples of loads, one of each round; plain numbers; what was left out, and why."""

import statistics
from dataclasses import dataclass, field

MIB, GIB = 1 << 20, 1 << 30


class LeftOutError(Exception):
    """Why something cannot be measured here: what is missing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one load. `amount` is in bytes or in operations; `cpu_s` is that of the processes that did it, or of
    the whole machine where the load says so."""

    amount: float
    seconds: float
    cpu_s: float
    peak_bytes: int = 0  # the most memory that one process of the client had; 0: unknown


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured, and how it is known that the data are right. In bytes, or else in operations."""

    name: str
    what: str
    check: str
    in_bytes: bool = True

    @property
    def unit(self) -> str:
        return "MiB/s" if self.in_bytes else "1/s"


@dataclass
class Row:
    """The rounds of a load."""

    load: Load
    samples: list[Sample] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """MiB or operations in a second, of each round."""
        scale = MIB if self.load.in_bytes else 1
        return [sample.amount / sample.seconds / scale for sample in self.samples]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """(Greatest - least) / median of the rates: 0 when all rounds agree."""
        return (max(self.rates) - min(self.rates)) / self.rate

    @property
    def cpu(self) -> float:
        """CPU seconds per GiB, or per 1,000 operations."""
        scale = GIB if self.load.in_bytes else 1000
        return statistics.median(sample.cpu_s / sample.amount * scale for sample in self.samples)


@dataclass
class Measurements:
    rows: dict[str, Row] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # load, system or group: why

    def add(self, load: Load, sample: Sample) -> None:
        if sample.amount <= 0 or sample.seconds <= 0:
            raise OSError(f"{load.name}: nothing was done in {sample.seconds:.3f} s")
        self.rows.setdefault(load.name, Row(load)).samples.append(sample)

    def add_number(self, name: str, value: float) -> None:
        self.numbers.setdefault(name, []).append(value)

    def add_peak(self, name: str, value: float) -> None:
        """Only the greatest one counts."""
        self.numbers[name] = [max(value, *self.numbers.get(name, [value]))]

    def ratio(self, above: str, below: str, factor: float = 1.0) -> float | None:
        """The median over the rounds of a rate divided by the other one of the same round; None if one is missing.

        Both of a round saw the same machine, so its drift is not in the ratio. If a round lacks one of them the ratio
        is that of the medians.
        """
        if above not in self.rows or below not in self.rows:
            return None
        one, other = self.rows[above], self.rows[below]
        if len(one.samples) != len(other.samples):
            return factor * one.rate / other.rate
        return factor * statistics.median(a / b for a, b in zip(one.rates, other.rates, strict=True))

    def flat(self) -> dict[str, float]:
        """Every figure under a name of its own."""
        found: dict[str, float] = {}
        for name, row in self.rows.items():
            found[f"{name}_{'mib_per_s' if row.load.in_bytes else 'per_s'}"] = row.rate
            found[f"{name}_cpu_s_per_{'gib' if row.load.in_bytes else '1000'}"] = row.cpu
            found[f"{name}_spread"] = row.spread
            found[f"{name}_rounds"] = len(row.samples)
        return found | {name: statistics.median(values) for name, values in self.numbers.items()}
