"""The exactly-once entries of a chunk: results of writes, so that each write is applied once however often it is sent
(I6). Pure.

An entry is kept until its write cannot be repeated any more. It is dropped by number *and* by age: a chunk with few
writers keeps all entries, and one with many writers keeps the recent ones. Ages are differences of stamps, which the
head gives to each write in minutes of the chain's logical time, so all replicas drop an entry with the same write.

With more writers than entries within that age, entries are dropped too early, and the newest version of these is kept
(`Forgotten`). A client says which version of the chunk it knew when it made its write. If an entry of a later version
was dropped too early, it is not known whether that write was applied. A first attempt is refused then, and the client
sends it again under a new number that names the first one: a late copy of the first attempt could still be taken.
"""

from collections.abc import Iterable
from typing import NamedTuple

#: Entries that are kept whatever their age, and the most that are kept.
KEPT_ENTRIES = 32
MAX_ENTRIES = 256
#: The longest time that an attempt of a write can be on its way, in logical time: the longest operation of a client
#: (20 minutes, `MAX_OPERATION_S` in threefs/leases.py), and much more for networks and their kernels.
WRITE_LIFETIME_MINUTES = 120


class OnceEntry(NamedTuple):
    """The result of a committed write, for a repeat of it."""

    client: bytes
    channel: int
    seq: int
    version: int
    length: int
    checksum: int
    stamp: int = 0  # minutes of the chain's time


class Forgotten(NamedTuple):
    """The newest entry that was dropped too early; version 0: none was."""

    version: int = 0
    stamp: int = 0


NOTHING_FORGOTTEN = Forgotten()


def add_entry(
    entries: tuple[OnceEntry, ...], forgotten: Forgotten, entry: OnceEntry
) -> tuple[tuple[OnceEntry, ...], Forgotten]:
    """The entries, oldest first, with one more."""
    others = [e for e in entries if (e.client, e.channel) != (entry.client, entry.channel)]
    dropped = 0
    while len(others) - dropped >= KEPT_ENTRIES and entry.stamp - others[dropped].stamp > WRITE_LIFETIME_MINUTES:
        dropped += 1
    excess = len(others) - dropped - (MAX_ENTRIES - 1)
    if excess > 0:
        dropped += excess
        last = others[dropped - 1]
        forgotten = Forgotten(max(forgotten.version, last.version), max(forgotten.stamp, last.stamp))
    kept = (*others[dropped:], entry)
    assert len(kept) <= MAX_ENTRIES, "the record of a chunk is bounded (I20)"
    return kept, forgotten


def may_be_forgotten(forgotten: Forgotten, known_version: int, now: int) -> bool:
    """Whether a write without an entry, made when its client knew `known_version`, may have been applied."""
    return forgotten.version > known_version and now - forgotten.stamp <= WRITE_LIFETIME_MINUTES


def newest_stamp(entries: Iterable[OnceEntry]) -> int:
    return max((entry.stamp for entry in entries), default=0)
