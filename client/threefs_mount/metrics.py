"""A mount as metrics of Prometheus: the requests of the kernel, and the client beneath."""

from collections.abc import Iterable
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from threefs.telemetry import histogram
from threefs.telemetry.histogram import Histogram


class Session(Protocol):
    """The part of `threefs_fuse.session.Session` that is used here."""

    @property
    def durations(self) -> dict[str, Histogram] | None: ...
    @property
    def requests_in_flight(self) -> int: ...


class Files(Protocol):
    """The part of `threefs_mount.files.open_file_table.OpenFileTable` that is used here."""

    @property
    def unsent_bytes(self) -> int: ...
    @property
    def open_count(self) -> int: ...


def mount_metrics(session: Session, files: Files) -> Iterable[Metric]:
    yield histogram.family(
        "threefs_mount_request_duration_seconds",
        "Requests of the kernel, from the read to the answer.",
        ["operation"],
        [([operation], durations) for operation, durations in sorted((session.durations or {}).items())],
    )
    for name, about, value in (
        ("requests_in_flight", "Requests of the kernel that are not answered.", session.requests_in_flight),
        ("open_files", "Files that programs have open.", files.open_count),
        ("unsent_bytes", "Bytes that programs have written and that are not durable yet.", files.unsent_bytes),
    ):
        yield GaugeMetricFamily(f"threefs_mount_{name}", about, value)
