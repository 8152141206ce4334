"""The settings of an engine, which may change while it runs."""

from dataclasses import dataclass, field

from threefs_storage.engine.overlay import OverlayLimits


@dataclass(frozen=True, slots=True)
class EngineSettings:
    full_ratio: float = 0.98  # of the disk: the rest is a reserve, which clients' writes cannot use
    cached_records: int = 32_768
    ballast_bytes: int = 0  # room for records on a full disk
    overlay: OverlayLimits = field(default_factory=OverlayLimits)
