"""How a storage process follows the configuration of the cluster: which part takes which values."""

from threefs.cluster.applied_configuration import AppliedConfiguration
from threefs.telemetry import logs
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import OverlayLimits
from threefs_storage.scheduling.background_scheduler import Work
from threefs_storage.service import Storage, pace_of
from threefs_storage.targets import Targets


def engine_settings(values: AppliedConfiguration) -> EngineSettings:
    return EngineSettings(
        full_ratio=values.number("full_ratio"),
        cached_records=values.integer("cached_records"),
        ballast_bytes=values.integer("ballast_bytes"),
        overlay=OverlayLimits(
            values.integer("deferred_bytes"), values.integer("inline_bytes"), values.integer("deferred_changes")
        ),
    )


def follow(values: AppliedConfiguration, targets: Targets, storage: Storage) -> None:
    """Let the parts take new values. `ballast_bytes` counts only for stores that are opened after that."""

    def apply_interval() -> None:
        storage.scrubber.set_interval(values.number("scrub_interval_s"), targets)

    def apply_fold_interval() -> None:
        storage.fold_scheduler.interval_s = values.number("fold_interval_s")

    engine = ["ballast_bytes", "cached_records", "deferred_bytes", "deferred_changes", "full_ratio", "inline_bytes"]
    pace = ["background_bytes_per_s", "background_share"]
    values.on_change(engine, lambda: targets.adopt(engine_settings(values)))
    values.on_change(pace, lambda: storage.scheduler.set_limits(pace_of(values)))
    values.on_change(
        ["scrub_bytes_per_s"], lambda: storage.scheduler.set_rate(Work.SCRUB, values.integer("scrub_bytes_per_s"))
    )
    values.on_change(["scrub_interval_s"], apply_interval)
    values.on_change(["fold_interval_s"], apply_fold_interval)
    values.on_change(["log_level"], lambda: logs.set_level(values.word("log_level")))
