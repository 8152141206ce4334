"""What the record table of a target holds: its rows now, and how to go back to what is durable of them."""

from bisect import bisect_left, insort
from collections.abc import Mapping

from tests.harness.seeded_random import SeededRandom
from threefs.kv.engine_api import Pair


class Rows:
    """Outlives processes. One opening at a time may write."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.undo: list[dict[bytes, bytes | None]] = []  # of the writes that are not durable yet, oldest first
        self.owner: object = None
        self.size_bytes = 0
        self.changes = 0  # that were made and not lost

    def copied(self) -> "Rows":
        """The same rows, all of them durable."""
        copy = Rows()
        copy.keys, copy.values, copy.size_bytes = list(self.keys), dict(self.values), self.size_bytes
        copy.changes = self.changes
        return copy

    def scan(self, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[Pair]:
        first, last = bisect_left(self.keys, begin), bisect_left(self.keys, end)
        if limit:
            first, last = (max(first, last - limit), last) if reverse else (first, min(last, first + limit))
        found = [(key, self.values[key]) for key in self.keys[first:last]]
        return found[::-1] if reverse else found

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.changes += 1
        self.undo.append({key: self.values.get(key) for key in changes})
        self._apply(changes)

    def forget_unsynced(self, random: SeededRandom) -> None:
        """The log is cut somewhere behind the last flush."""
        for _ in range(random.below(len(self.undo) + 1)):
            self._apply(self.undo.pop())
            self.changes -= 1
        self.undo.clear()

    def _apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            old = self.values.pop(key, None)
            if old is not None:
                self.size_bytes -= len(key) + len(old)
                if value is None:
                    del self.keys[bisect_left(self.keys, key)]
            elif value is not None:
                insort(self.keys, key)
            if value is not None:
                self.size_bytes += len(key) + len(value)
                self.values[key] = value
