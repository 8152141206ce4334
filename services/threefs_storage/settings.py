"""Settings of the storage program: one process per disk."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    node_id: int  # as in the cluster's plan
    data_dir: Path
    manager: str  # framed "host:port"; of several managers all of them, with commas between
    control: str  # gRPC "host:port" of the same managers
    host: str = "127.0.0.1"
    port: int = 0  # 0 picks a free one
    domain: str = ""
    key_file: str = ""  # of the cluster's key (threefs.keys); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    log_level: str = "info"  # debug, info, warning or error
    full_ratio: float = 0.98  # of the disk: beyond it clients' writes are refused
    cached_records: int = 32_768  # per target
    ballast_bytes: int = 16 << 20  # per target, held free so that a full disk can be tidied up
    scrub_bytes_per_s: int = 32 << 20  # at which everything is read and verified ...
    scrub_interval_s: float = 7 * 86_400.0  # ... once in so long

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")

    @property
    def controls(self) -> list[str]:
        return self.control.split(",")
