"""Settings of the meta program."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    manager: str  # framed "host:port"; of several managers all of them, with commas between
    control: str  # gRPC "host:port" of the same managers
    host: str = "127.0.0.1"
    port: int = 0  # frames; 0 picks a free one
    metrics_port: int = 0  # HTTP for Prometheus, at /metrics; 0: none
    key_file: str = ""  # of the cluster's key (threefs.keys); needed where host can be reached from other machines
    token: str = field(default="", repr=False)  # the key itself
    engine: str = field(default="", repr=False)  # URL of the store; empty is the embedded one in data_dir
    owner_uid: int = 0  # whose the root directory of a cluster is that is made here ...
    owner_gid: int = 0
    log_level: str = "info"  # debug, info, warning or error

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")

    @property
    def controls(self) -> list[str]:
        return self.control.split(",")
