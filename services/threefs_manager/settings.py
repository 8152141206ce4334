"""Settings of the manager program."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 7000  # frames; 0 picks a free one
    control_port: int = 7001  # gRPC
    token: str = field(default="", repr=False)
    silent_after_s: float = 10.0  # a node that has not been heard of for so long counts as not alive
