"""How much a run does."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    machines: int  # of the plan that is placed: each is a failure domain
    disks: int  # of a machine
    targets_per_disk: int
    manager_s: float  # that the manager is measured
    routing_changes: int  # in that time
    file_bytes: int  # that the growing cluster keeps, one copy counted
    idle_s: float  # for which its reads are measured before it changes
    kills_in_each_change: bool  # else only the process whose disk is replaced is killed

    @property
    def processes(self) -> int:
        """One for each disk."""
        return self.machines * self.disks


SMALL = Size("small", 12, 4, 6, 3.0, 2, 16 << 20, 2.0, kills_in_each_change=False)
FULL = Size("full", 180, 16, 12, 60.0, 2, 512 << 20, 20.0, kills_in_each_change=True)
SIZES = {size.name: size for size in (SMALL, FULL)}


@dataclass(frozen=True, slots=True)
class Run:
    """What a group gets: where it may work, and how much it shall do."""

    scratch: Path
    size: Size
    processes: int  # that a manager is measured with
    tell: Callable[[str], None]
