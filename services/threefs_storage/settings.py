"""Settings of the storage program: one process per disk."""

from dataclasses import dataclass, field
from pathlib import Path

from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp


@dataclass(frozen=True, slots=True)
class Settings:
    node_id: int  # as in the cluster's plan
    data_dir: Path
    manager: str  # framed "host:port"; of several managers all of them, with commas between
    control: str = ""  # not used any more; files of before 0.3 have it
    host: str = "127.0.0.1"
    port: int = 0  # 0 picks a free one
    metrics_port: int = 0  # HTTP for Prometheus, at /metrics; 0: none
    trace_endpoint: str = ""  # OTLP/HTTP of a collector of OpenTelemetry, "http://host:4318"; empty: no traces
    trace_sample: float = 0.0  # share of writes that are traced though their clients trace none
    domain: str = ""
    key_file: str = ""  # of the cluster (threefs.cluster_key); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    dscp: Dscp = DEFAULT_DSCP  # how packets are marked, by traffic class
    # Keys of `threefs.configuration.KEYS`: None takes the value of the cluster, or the default.
    log_level: str | None = None
    background_bytes_per_s: int | None = None
    background_share: float | None = None
    ballast_bytes: int | None = None
    cached_records: int | None = None
    deferred_bytes: int | None = None
    deferred_changes: int | None = None
    fold_interval_s: float | None = None
    full_ratio: float | None = None
    inline_bytes: int | None = None
    scrub_bytes_per_s: int | None = None
    scrub_interval_s: float | None = None

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")
