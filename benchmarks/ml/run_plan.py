"""How much a run does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from threefs_bench.peer_harness import Harness

from benchmarks.measurements import MIB


@dataclass(frozen=True, slots=True)
class SampleSet:
    name: str
    sample_bytes: int
    batch: int  # samples
    share: float  # of the bytes of the largest set: small samples take longer


SAMPLE_SETS = (
    SampleSet("4k", 4 << 10, 256, 1 / 8),
    SampleSet("64k", 64 << 10, 64, 1 / 2),
    SampleSet("1m", MIB, 8, 1.0),
)


@dataclass(frozen=True, slots=True)
class Size:
    name: str
    set_bytes: int  # of the largest set of samples
    seconds: float  # of a reader
    checkpoint_bytes: int
    histories: int  # of stops and resumptions
    kills: int  # of a job that saves


SMALL = Size("small", 32 * MIB, 0.3, 32 * MIB, 20, 1)
FULL = Size("full", 512 * MIB, 5.0, 512 * MIB, 10_000, 200)
SIZES = {size.name: size for size in (SMALL, FULL)}


@dataclass(frozen=True, slots=True)
class Round:
    """What a group gets: where it may work, how much it shall do, and which round this is."""

    scratch: Path
    size: Size
    number: int
    beside: Sequence[str]  # other loaders and ways to save, which are measured too
    mosaic_python: str  # an interpreter that has Mosaic's library
    tell: Callable[[str], None]
    harness: Harness | None = None  # brings other file systems up
