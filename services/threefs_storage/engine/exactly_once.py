"""What is remembered of the writes of a chunk, so that each is applied once however often it is sent (I6). Pure.

The result of a write is kept until nobody can repeat it: it ends by number *and* by age, so that of a chunk that few
write all results are kept, and of one that many have written only those of late. Ages are differences of stamps, which
the head of the chain gives to each write in minutes of the chain's own time (`Age`): on all replicas a result ends with
the same write.

When more writers come in that time than results are kept, results end too early. The newest version of which that is so
is remembered. A client says which version of the chunk it knew when it made its write. If a result beyond that has
ended too early, nobody can tell whether that write was applied: a first attempt is refused, and sent again under a new
number that names the first one. For a late copy of the first attempt may be taken yet, when enough time has passed.
"""

from collections.abc import Iterable
from typing import NamedTuple

#: Results kept whatever their age, and the most that are kept.
KEPT_ENTRIES = 32
MOST_ENTRIES = 256
#: No attempt of a write is on its way for so long: the longest time that a client may give a call, one hour, and what
#: networks and their kernels may hold back.
LIFETIME_MIN = 120


class Entry(NamedTuple):
    """The result of a committed write, for whoever sends it again."""

    client: bytes
    channel: int
    seq: int
    version: int
    length: int
    checksum: int
    stamp: int = 0  # minutes of the chain's time


class Forgotten(NamedTuple):
    """The newest result that ended before its time; version 0: none has."""

    version: int = 0
    stamp: int = 0


NOTHING_FORGOTTEN = Forgotten()


def remember(entries: tuple[Entry, ...], forgotten: Forgotten, entry: Entry) -> tuple[tuple[Entry, ...], Forgotten]:
    """The results, oldest first, once one more is among them."""
    others = [e for e in entries if (e.client, e.channel) != (entry.client, entry.channel)]
    ended = 0
    while len(others) - ended >= KEPT_ENTRIES and entry.stamp - others[ended].stamp > LIFETIME_MIN:
        ended += 1
    too_early = len(others) - ended - (MOST_ENTRIES - 1)
    if too_early > 0:
        ended += too_early
        last = others[ended - 1]
        forgotten = Forgotten(max(forgotten.version, last.version), max(forgotten.stamp, last.stamp))
    return (*others[ended:], entry), forgotten


def may_be_forgotten(forgotten: Forgotten, known_version: int, now: int) -> bool:
    """Whether a write without a result here, made when `known_version` was known, may have been applied."""
    return forgotten.version > known_version and now - forgotten.stamp <= LIFETIME_MIN


def newest_stamp(entries: Iterable[Entry]) -> int:
    return max((entry.stamp for entry in entries), default=0)
