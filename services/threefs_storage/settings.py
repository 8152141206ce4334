"""Settings of the storage program: one process per disk."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    node_id: int  # as in the cluster's plan
    data_dir: Path
    manager: str  # framed "host:port"
    control: str  # the manager's gRPC "host:port"
    host: str = "127.0.0.1"
    port: int = 0  # 0 picks a free one
    domain: str = ""
    token: str = field(default="", repr=False)
    heartbeat_s: float = 2.0
    full_ratio: float = 0.98  # of the disk: beyond it clients' writes are refused
    cached_records: int = 32_768  # per target
