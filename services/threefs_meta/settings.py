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
    token: str = field(default="", repr=False)
    engine: str = field(default="", repr=False)  # URL of the store; empty is the embedded one in data_dir
    log_level: str = "info"  # debug, info, warning or error

    @property
    def managers(self) -> list[str]:
        return self.manager.split(",")

    @property
    def controls(self) -> list[str]:
        return self.control.split(",")
