"""The costs that the model takes from a real machine: CPU of a read in client and service, and what a disk does."""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("calibration.json")
#: Of the 99th percentile of a normal distribution, in standard deviations.
_P99 = 2.326


@dataclass(frozen=True, slots=True)
class Calibration:
    """Seconds for each read, and for each byte of it."""

    storage_read_s: float
    storage_byte_s: float
    client_read_s: float
    client_byte_s: float
    disk_latency_s: float
    disk_latency_spread: float  # sigma of a lognormal distribution
    disk_bytes_per_s: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"calibration {field.name}={value} is not a number from 0 on")

    def faster(self, cores: float, disk_bytes_per_s: float) -> "Calibration":
        """Hosts whose cores need that much less time, and whose disks have that rate."""
        names = ("storage_read_s", "storage_byte_s", "client_read_s", "client_byte_s")
        costs = {name: getattr(self, name) / cores for name in names}
        return dataclasses.replace(self, **costs, disk_bytes_per_s=disk_bytes_per_s)

    def storage_s(self, size: int) -> float:
        return self.storage_read_s + size * self.storage_byte_s

    def client_s(self, size: int) -> float:
        return self.client_read_s + size * self.client_byte_s


def best(several: Sequence[Calibration]) -> Calibration:
    """The least of each cost, and the greatest rate."""
    found = {field.name: min(getattr(one, field.name) for one in several) for field in fields(Calibration)}
    return Calibration(**{**found, "disk_bytes_per_s": max(one.disk_bytes_per_s for one in several)})


def load(path: Path = FILE) -> Calibration:
    return Calibration(**json.loads(path.read_text(encoding="utf-8")))


def save(calibration: Calibration, path: Path = FILE) -> None:
    path.write_text(json.dumps(asdict(calibration), indent=1) + "\n", encoding="utf-8")


def line(small: int, small_s: float, large: int, large_s: float) -> tuple[float, float]:
    """(seconds of each read, seconds of each byte) through the costs of two sizes. Neither is below 0."""
    per_byte = max(0.0, (large_s - small_s) / (large - small))
    return max(0.0, small_s - small * per_byte), per_byte


def latency_spread(report: dict[str, Any]) -> tuple[float, float]:
    """(median in seconds, sigma) of the latencies of a fio job."""
    percentiles = report["jobs"][0]["read"]["clat_ns"]["percentile"]
    p50, p99 = percentiles["50.000000"] / 1e9, percentiles["99.000000"] / 1e9
    return p50, math.log(p99 / p50) / _P99
