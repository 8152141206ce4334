"""Settings of the meta program."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    manager: str  # its framed port, "host:port"
    control: str  # its gRPC port, "host:port"
    host: str = "127.0.0.1"
    port: int = 0  # frames; 0 picks a free one
    token: str = field(default="", repr=False)
