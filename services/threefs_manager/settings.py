"""Settings of the manager program."""

from dataclasses import dataclass, field
from pathlib import Path

from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 7000  # frames; 0 picks a free one
    control_port: int = 7001  # gRPC, for tools in other languages
    metrics_port: int = 0  # HTTP for Prometheus, at /metrics; 0: none
    key_file: str = ""  # of the cluster (threefs.cluster_key); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    engine: str = field(default="", repr=False)  # URL of the store; empty is the embedded one in data_dir
    lease_s: float = 10.0  # T of a cluster that is made here: a target that is silent for so long is dead
    dscp: Dscp = DEFAULT_DSCP  # how packets are marked, by traffic class
    # Keys of `threefs.configuration.KEYS`: None takes the value of the cluster, or the default.
    log_level: str | None = None
    moves_filling_disk: int | None = None
    moves_reading_disk: int | None = None
    nearly_full_ratio: float | None = None
