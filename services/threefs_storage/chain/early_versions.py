"""Early versions: pending versions whose payload has come before all predecessors have them on their disks. Pure.

An early version counts for nothing. It may be replaced, dropped or lost at any time, nobody commits or shows it, and
nobody waits for it (P2, P4, P10). It becomes a *full* pending version when a predecessor forwards it (P5). The marks
are in memory only: after a restart every pending version is full (P8). docs/protocol.md explains the rules P1 to P13.
"""

from collections.abc import Iterator
from typing import NamedTuple

from threefs.ids import ChunkId, TargetId, WriteIdentity


class Change(NamedTuple):
    """A change as its predecessor sends it to make a version. Two changes that are equal make the same version."""

    version: int
    identity: WriteIdentity | None
    stamp: int
    kind: int
    offset: int
    length: int
    checksum: int  # of the payload


class EarlyVersion(NamedTuple):
    change: Change
    since: float  # by the monotonic clock
    passed_to: TargetId | None  # the successor to which the payload was sent on, and that is not known to lack it


class EarlyVersions:
    """The marks of one target. A chunk has a mark from before its early version is staged, so no step of the event loop
    takes that version for a full one."""

    def __init__(self) -> None:
        self._by_chunk: dict[ChunkId, EarlyVersion] = {}  # in the order in which they came

    def mark(self, chunk: ChunkId, early: EarlyVersion) -> None:
        """The pending version of this chunk is early from now on. Another early one has been dropped before."""
        assert chunk not in self._by_chunk, "an early version is dropped before another one takes its place (P12)"
        self._by_chunk[chunk] = early

    def take(self, chunk: ChunkId) -> EarlyVersion:
        """The pending version is full from now on (P5)."""
        return self._by_chunk.pop(chunk)

    def discard(self, chunk: ChunkId) -> None:
        """Nothing is pending any more, or what is pending is full."""
        self._by_chunk.pop(chunk, None)

    def clear(self) -> None:
        """All that is pending is full from now on (P7, P8)."""
        self._by_chunk.clear()

    def is_made_by(self, chunk: ChunkId, change: Change) -> bool:
        """Whether the chunk has an early version, and this change has made it."""
        early = self._by_chunk.get(chunk)
        return early is not None and early.change == change

    def was_passed_to(self, chunk: ChunkId, successor: TargetId) -> bool:
        """Whether the early version of this chunk was sent on to that target."""
        early = self._by_chunk.get(chunk)
        return early is not None and early.passed_to == successor

    def note_not_passed(self, chunk: ChunkId, change: Change) -> None:
        """The successor has refused the change, or it was lost."""
        if self.is_made_by(chunk, change):
            self._by_chunk[chunk] = self._by_chunk[chunk]._replace(passed_to=None)

    def older_than(self, since: float) -> list[ChunkId]:
        """The chunks whose early version came before that moment."""
        found = []
        for chunk, early in self._by_chunk.items():
            if early.since >= since:
                break
            found.append(chunk)
        return found

    def __contains__(self, chunk: object) -> bool:
        return chunk in self._by_chunk

    def __iter__(self) -> Iterator[ChunkId]:
        return iter(self._by_chunk)

    def __len__(self) -> int:
        return len(self._by_chunk)
