"""A cache of the entries of small directories, as this service has read them.

A directory draws a new token in every transaction that changes one of its entries. So the entries that were read under
a token are valid wherever the same token is found, whichever services have changed the directory in between.
"""

from threefs_meta.store.entry_codec import EntryColumns

#: Bounds the memory of the cache.
MAX_BYTES = 16 << 20
_OVERHEAD_BYTES = 512  # for each directory


class ListingCache:
    def __init__(self) -> None:
        self.size = 0
        self._cached: dict[int, tuple[int, EntryColumns]] = {}  # token and entries, the newest at the end

    def get(self, directory: int, token: int) -> EntryColumns | None:
        cached = self._cached.get(directory)
        return cached[1] if cached is not None and cached[0] == token else None

    def put(self, directory: int, token: int, columns: EntryColumns) -> None:
        """`columns` are all entries of the directory under this token."""
        self._drop(directory)
        self._cached[directory] = token, columns
        self.size += _size(columns)
        while self.size > MAX_BYTES:
            self._drop(next(iter(self._cached)))

    def _drop(self, directory: int) -> None:
        cached = self._cached.pop(directory, None)
        if cached is not None:
            self.size -= _size(cached[1])
            assert self.size >= 0, "the cache counts what it holds"


def _size(columns: EntryColumns) -> int:
    return _OVERHEAD_BYTES + sum(map(len, columns))
