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

    @property
    def processes(self) -> int:
        """One for each disk."""
        return self.machines * self.disks


SMALL = Size("small", 12, 4, 6)
FULL = Size("full", 180, 16, 12)
SIZES = {size.name: size for size in (SMALL, FULL)}


@dataclass(frozen=True, slots=True)
class Run:
    """What a group gets: where it may work, and how much it shall do."""

    scratch: Path
    size: Size
    tell: Callable[[str], None]
