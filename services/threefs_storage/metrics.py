"""A storage service as metrics of Prometheus: its background work, its disk and its targets."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from threefs.routing import PublicState
from threefs.telemetry import histogram
from threefs.wire import manager_pb2
from threefs_storage.scheduling.background_scheduler import Work, WorkCounters
from threefs_storage.target import Target
from threefs_storage.targets import report_of

_WORK = (
    ("pieces", "Pieces of background work."),
    ("bytes", "Bytes of these pieces."),
    ("waited_seconds", "How long all pieces together have waited for their turn."),
)
_COUNTERS = (
    ("scrubbed_chunks", "Chunks that the scrubber has read."),
    ("scrubbed_bytes", "Bytes that the scrubber has read."),
    ("scrub_passes", "Passes of the scrubber over all chunks."),
    ("damaged_chunks", "Damaged chunks that were found."),
    ("repaired_chunks", "Damaged chunks that were repaired from another replica."),
)
_GAUGES = (
    ("used_bytes", "Bytes of chunks."),
    ("reusable_bytes", "Bytes in the files of the target that nothing uses."),
    ("chunks", "Chunks."),
    ("unrepaired_chunks", "Damaged chunks that no other replica has been able to give yet."),
    ("lost_chunks", "Chunks that no member of the chain can read."),
)


def background_metrics(background: Mapping[Work, WorkCounters]) -> Iterable[Metric]:
    for name, about in _WORK:
        by_work = CounterMetricFamily(f"threefs_storage_background_{name}", about, labels=["work"])
        for work, counted in background.items():
            by_work.add_metric([work.value], getattr(counted, name))
        yield by_work


def target_metrics(targets: Sequence[Target]) -> Iterable[Metric]:
    """Of the disk, which all targets of a process share, and of each target."""
    reports = [report_of(target) for target in targets]
    yield from _disk(reports)
    for kind, rows in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
        for name, about in rows:
            by_target = kind(f"threefs_target_{name}", about, labels=["target"])
            for report in reports:
                by_target.add_metric([str(report.target_id)], getattr(report, name))
            yield by_target
    yield from _scrub_ages(reports)
    yield from _resync(targets, reports)
    yield _states(targets)
    yield histogram.family(
        "threefs_target_commit_duration_seconds",
        "From a write that is staged until data and record are durable on the disk.",
        ["target"],
        [([str(target.target_id)], target.engine.committer.durations) for target in targets],
    )


def _disk(reports: Sequence[manager_pb2.TargetReport]) -> Iterable[Metric]:
    reusable = sum(report.reusable_bytes for report in reports)
    unused = max((report.free_bytes - report.reusable_bytes for report in reports), default=0)
    for name, about, value in (
        ("capacity_bytes", "Size of the disk.", max((report.capacity_bytes for report in reports), default=0)),
        ("free_bytes", "Free on the disk, and what the targets can use again in their files.", unused + reusable),
        (
            "read_only",
            "1: the disk is full, and refuses writes of clients.",
            any(report.read_only for report in reports),
        ),
    ):
        yield GaugeMetricFamily(f"threefs_disk_{name}", about, value)


def _scrub_ages(reports: Sequence[manager_pb2.TargetReport]) -> Iterable[Metric]:
    for name, about, field in (
        ("unscrubbed", "Since the last pass of the scrubber over all chunks, or the start.", "unscrubbed_ms"),
        ("scrub_interval", "How often a pass should begin; 0: no scrubber has begun.", "scrub_interval_ms"),
    ):
        family = GaugeMetricFamily(f"threefs_target_{name}_seconds", about, labels=["target"])
        for report in reports:
            family.add_metric([str(report.target_id)], getattr(report, field) / 1000)
        yield family


def _resync(targets: Sequence[Target], reports: Sequence[manager_pb2.TargetReport]) -> Iterable[Metric]:
    """Of the successor that a target brings up to date; absent for all others."""
    family = GaugeMetricFamily(
        "threefs_target_resync_chunks",
        "Of a successor that is brought up to date.",
        labels=["target", "state"],
    )
    for target, report in zip(targets, reports, strict=True):
        if report.chunks_to_sync:
            left = max(0, report.chunks_to_sync - report.synced_chunks)
            family.add_metric([str(target.target_id), "done"], report.synced_chunks)
            family.add_metric([str(target.target_id), "left"], left)
    yield family


def _states(targets: Sequence[Target]) -> Metric:
    """As the process knows its chains: 1 for the state of a target, 0 for the others."""
    family = GaugeMetricFamily(
        "threefs_target_state", "1 for the public state of the target in its chain.", labels=["target", "state"]
    )
    for target in targets:
        found = target.chain.state(target.target_id)
        for state in PublicState:
            family.add_metric([str(target.target_id), state.name.lower()], found is state)
    return family
