"""Incarnations: the number of a process among all that were started on its data directory. Each start has a higher one.

The order tells a REGISTER that comes late from a restart. The number is the time of the start in milliseconds since
1970, or a little more than the number before if the wall clock went back. It is durable before it is used. If the file
is lost, the wall clock gives the next number; a process that is refused because the manager knows a higher number takes
one a little above that. How little is drawn: where a disk was exchanged, two directories of one node may know the same
number, and must not draw the same next one. The manager would take the later process for the earlier one.
"""

import os
from pathlib import Path

import structlog

from threefs.env.random import Random
from threefs.errors import FULL_DISK

FILE_NAME = "incarnation"
_NS_PER_MS = 1_000_000
_GAP = 1 << 24  # 4.7 hours, as much as the wall clock has to catch up
_SECTOR_BYTES = 512  # a disk writes a sector whole or not at all
_LOG = structlog.get_logger()


def next_incarnation(file: Path, wall_ns: int, random: Random, above: int = 0) -> int:
    """Draw a number higher than all before it and than `above`. Raises OSError if it cannot be stored."""
    known, now = max(_newest(file), above), wall_ns // _NS_PER_MS
    number = now if now > known else known + 1 + random.below(_GAP)
    write_durably(file, f"{number}\n".encode("ascii"))
    return number


def _newest(file: Path) -> int:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return 0
    try:
        return int(text)
    except ValueError:
        _LOG.warning("the file of the incarnation holds no number, so the wall clock gives the next", file=str(file))
        return 0


def write_durably(file: Path, content: bytes) -> None:
    """Replace the content of the file, at most one sector, durably. After a crash the file has the old content or the
    new one. Raises OSError."""
    assert len(content) <= _SECTOR_BYTES, "a longer write is not atomic"
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    try:
        with fresh.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.errno not in FULL_DISK or not file.exists():
            raise
        _overwrite(file, content)
        return
    fresh.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _overwrite(file: Path, content: bytes) -> None:
    """Write into the old file, because a full disk has no block for a new one."""
    with file.open("r+b", buffering=0) as out:
        out.write(content)
        out.truncate()
        os.fsync(out.fileno())
