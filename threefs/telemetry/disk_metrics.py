"""The room on the disk of an embedded store, as metrics of Prometheus."""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily


def store_disk(directory: Path) -> Iterable[Metric]:
    found = os.statvfs(directory)
    for name, about, blocks in (
        ("capacity", "Size of the disk of the embedded store.", found.f_blocks),
        ("free", "Free on the disk of the embedded store.", found.f_bavail),
    ):
        yield GaugeMetricFamily(f"threefs_store_disk_{name}_bytes", about, blocks * found.f_frsize)
