"""Settings of the storage program: one process per disk."""

from dataclasses import dataclass, field
from pathlib import Path

from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp


@dataclass(frozen=True, slots=True)
class Settings:
    node_id: int  # as in the cluster's plan
    data_dir: Path
    manager: str  # framed "host:port"; of several managers all of them, with commas between
    control: str  # gRPC "host:port" of the same managers
    host: str = "127.0.0.1"
    port: int = 0  # 0 picks a free one
    metrics_port: int = 0  # HTTP for Prometheus, at /metrics; 0: none
    domain: str = ""
    key_file: str = ""  # of the cluster (threefs.cluster_key); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    log_level: str = "info"  # debug, info, warning or error
    full_ratio: float = 0.98  # of the disk: beyond it clients' writes are refused
    cached_records: int = 32_768  # per target
    deferred_bytes: int = 64 << 10  # the largest change of a chunk that is kept in the record store; 0: none is
    inline_bytes: int = 16 << 10  # the largest chunk that lies in the record store as a whole
    deferred_changes: int = 128  # of a chunk, before it is rewritten
    fold_interval_s: float = 10.0  # chunks that have not changed for so long are moved from the record store to blocks
    ballast_bytes: int = 16 << 20  # per target, held free so that a full disk can be tidied up
    background_bytes_per_s: int = 8 << 20  # that resync, repair and the like get at least while clients are served
    scrub_bytes_per_s: int = 32 << 20  # at which everything is read and verified ...
    scrub_interval_s: float = 7 * 86_400.0  # ... once in so long
    dscp: Dscp = DEFAULT_DSCP  # how packets are marked, by traffic class

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")

    @property
    def controls(self) -> list[str]:
        return self.control.split(",")
