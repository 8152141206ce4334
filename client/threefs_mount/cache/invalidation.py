"""What has been changed here, or heard of more freshly. An answer that was asked for before may show it as it was.

No I/O happens here.
"""

from typing import TypeAlias

from threefs.bounded_dict import BoundedDict

#: Bounds the memory. Of what was asked for before the last so many, nothing is believed.
MAX_RECORDS = 8192

#: An inode; or a name in a directory, which may stand for another inode from then on.
CacheKey: TypeAlias = int | tuple[int, bytes]


class InvalidationLog:
    def __init__(self) -> None:
        self.generation = 0  # of now: whoever asks takes it along
        self._generations = BoundedDict[CacheKey, int](MAX_RECORDS)
        self._oldest_generation = 0  # up to there nothing is known

    def record(self, thing: CacheKey) -> None:
        self.generation += 1
        evicted = self._generations.put(thing, self.generation)
        if evicted is not None:
            self._oldest_generation = evicted[1]

    def changed_since(self, mark: int) -> set[CacheKey] | None:
        """What was touched since then. None: that is not known any more."""
        if mark < self._oldest_generation:
            return None
        found: set[CacheKey] = set()
        for thing, at in reversed(self._generations.items()):
            if at <= mark:
                break
            found.add(thing)
        return found
