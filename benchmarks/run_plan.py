"""How much a run does: the sizes of its files, and the length of its loads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurements import MIB


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    file_bytes: int  # of the file that reads and writes of 1 MiB work on
    seconds: float  # of a load that has no end of its own
    overwritten_bytes: int  # of the file that is overwritten in blocks of 4 KiB
    writer_bytes: int  # of each of the writers of records
    settle_s: float  # without a write of the disk: then the work of a load is over, folding included
    most_settle_s: float  # others may write to the disk all the time
    transactions_s: int  # of pgbench
    peers_quick: bool


SMALL = Size("small", 32 * MIB, 0.3, 4 * MIB, 4 * MIB, 0.2, 2.0, 1, True)
FULL = Size("full", 512 * MIB, 4.0, 64 * MIB, 128 * MIB, 12.0, 90.0, 10, False)
SIZES = {size.name: size for size in (SMALL, FULL)}


@dataclass(frozen=True, slots=True)
class Round:
    """The task of a group of loads: where it may work, how much it shall do, and which round this is."""

    scratch: Path
    size: Size
    number: int
    tell: Callable[[str], None]
