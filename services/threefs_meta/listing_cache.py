"""A cache of the entries of small directories, as this service has read them.

A directory draws a new token in every transaction that changes one of its entries. So the entries that were read under
a token are valid wherever the same token is found, whichever services have changed the directory in between.
"""

from threefs_meta.store.entry_codec import EntryColumns

_OVERHEAD_BYTES = 512  # for each directory


class ListingCache:
    def __init__(self, max_bytes: int = 16 << 20) -> None:
        self.size = 0
        self._max_bytes = max_bytes
        self._cached: dict[int, tuple[int, EntryColumns]] = {}  # token and entries, the newest at the end

    def get(self, directory: int, token: int) -> EntryColumns | None:
        cached = self._cached.get(directory)
        return cached[1] if cached is not None and cached[0] == token else None

    def put(self, directory: int, token: int, columns: EntryColumns) -> None:
        """`columns` are all entries of the directory under this token."""
        self._drop(directory)
        self._cached[directory] = token, columns
        self.size += _size(columns)
        self._evict()

    def set_max_bytes(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._evict()

    def _evict(self) -> None:
        while self.size > self._max_bytes:
            self._drop(next(iter(self._cached)))

    def _drop(self, directory: int) -> None:
        cached = self._cached.pop(directory, None)
        if cached is not None:
            self.size -= _size(cached[1])
            assert self.size >= 0, "the cache counts what it holds"


def _size(columns: EntryColumns) -> int:
    return _OVERHEAD_BYTES + sum(map(len, columns))
