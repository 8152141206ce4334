"""The newest invalidations. An answer to a question that was sent before an invalidation may show the old state.

No I/O happens here.
"""

from typing import TypeAlias

from threefs.bounded_dict import BoundedDict

#: Bounds the memory. An answer is not used if more invalidations than this were recorded since its question.
MAX_RECORDS = 8192

#: An inode, or a name in a directory, which may belong to another inode after that.
CacheKey: TypeAlias = int | tuple[int, bytes]


class InvalidationLog:
    def __init__(self) -> None:
        self.generation = 0  # the current one; a question takes it along
        self._generations = BoundedDict[CacheKey, int](MAX_RECORDS)
        self._oldest_generation = 0  # of older ones the invalidations are not known

    def record(self, key: CacheKey) -> None:
        self.generation += 1
        evicted = self._generations.put(key, self.generation)
        if evicted is not None:
            self._oldest_generation = evicted[1]

    def changed_since(self, generation: int) -> set[CacheKey] | None:
        """The keys that were invalidated since that generation. None: that is not known any more."""
        if generation < self._oldest_generation:
            return None
        found: set[CacheKey] = set()
        for key, invalidated in reversed(self._generations.items()):
            if invalidated <= generation:
                break
            found.add(key)
        return found
