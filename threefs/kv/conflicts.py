"""Conflict detection: which commits have changed keys or ranges that a transaction has read. No I/O.

Commits are numbered 1, 2, 3 ...; the number of a commit is the version of the store after it. The history covers a
window of time. A transaction that began before the window cannot be checked for conflicts: it is too old.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable

from threefs.errors import TooOld

_TRIM_EVERY = 256  # commits


class Reads:
    """The keys, and the ranges with begin <= key < end, that a transaction depends on."""

    __slots__ = ("points", "ranges")

    def __init__(self, points: Iterable[bytes] = (), ranges: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.points = set(points)
        self.ranges = list(ranges)

    def size_bytes(self) -> int:
        return sum(map(len, self.points)) + sum(len(begin) + len(end) for begin, end in self.ranges)


class History:
    """The commits of the window, with the keys that each has written."""

    def __init__(self, window_s: float) -> None:
        self.version = 0
        self._window_s = window_s
        self._floor = 0  # commits up to this one are forgotten
        self._times: list[float] = []  # of commit floor + 1, floor + 2, ...
        self._commits: list[Collection[bytes]] = []  # the keys that each of them wrote
        self._latest: dict[bytes, int] = {}  # key -> newest commit in the window that wrote it

    def record(self, keys: Collection[bytes], now: float) -> int:
        """Number the commit that wrote `keys` at the moment `now` (monotonic seconds)."""
        self.version += 1
        self._times.append(now)
        self._commits.append(keys)
        for key in keys:
            self._latest[key] = self.version
        if self.version % _TRIM_EVERY == 0:
            self._trim(now - self._window_s)
        return self.version

    def newest(self, reads: Reads, after: int) -> int:
        """The newest commit later than `after` that wrote a key of `reads`; `after` if there is none.

        Raises TooOld if the window begins later than `after`.
        """
        if after == self.version:
            return after
        if after < self._floor:
            raise TooOld
        found = after
        latest = self._latest
        for key in reads.points:
            version = latest.get(key, 0)
            if version > found:
                found = version
        for begin, end in reads.ranges:
            found = self._newest_in_range(begin, end, found)
        return found

    def _newest_in_range(self, begin: bytes, end: bytes, after: int) -> int:
        for version in range(self.version, after, -1):
            for key in self._commits[version - self._floor - 1]:
                if begin <= key < end:
                    return version
        return after

    def _trim(self, before: float) -> None:
        count = bisect_right(self._times, before)
        self._floor += count
        for keys in self._commits[:count]:
            for key in keys:
                if self._latest.get(key, self.version) <= self._floor:
                    del self._latest[key]
        del self._times[:count], self._commits[:count]
