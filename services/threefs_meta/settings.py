"""Settings of the program `threefs-meta`."""

from dataclasses import dataclass, field
from pathlib import Path

from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    manager: str  # "host:port" for frames; several managers are separated by commas
    control: str = ""  # not used any more; files of before 0.3 have it
    host: str = "127.0.0.1"
    port: int = 0  # for frames; 0 picks a free one
    metrics_port: int = 0  # HTTP for Prometheus, at /metrics; 0: none
    key_file: str = ""  # of the cluster (threefs.cluster_key); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    engine: str = field(default="", repr=False)  # URL of the store; empty is the embedded one in data_dir
    owner_uid: int = 0  # owner of the root directory, if this service makes the store of a new cluster
    owner_gid: int = 0
    dscp: Dscp = DEFAULT_DSCP  # how packets are marked, by traffic class
    # Keys of `threefs.configuration.KEYS`: None takes the value of the cluster, or the default.
    log_level: str | None = None
    listing_cache_bytes: int | None = None
    orphan_interval_s: float | None = None
    removals_at_once: int | None = None

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")
