"""What small directories contain, as far as it was looked up here.

A directory draws another token in every transaction that changes one of its entries, so what was found under a token is
right for all who find the same token, whichever service has changed the directory meanwhile.
"""

from threefs_meta.store.entry_codec import EntryColumns

#: Bounds the memory.
MAX_BYTES = 16 << 20
_OVERHEAD_BYTES = 512  # of each directory


class ListingCache:
    def __init__(self) -> None:
        self.size = 0
        self._known: dict[int, tuple[int, EntryColumns]] = {}  # token and entries, the newest at the end

    def get(self, directory: int, token: int) -> EntryColumns | None:
        known = self._known.get(directory)
        return known[1] if known is not None and known[0] == token else None

    def put(self, directory: int, token: int, columns: EntryColumns) -> None:
        """All entries of a directory that has a token."""
        self._drop(directory)
        self._known[directory] = token, columns
        self.size += _size(columns)
        while self.size > MAX_BYTES:
            self._drop(next(iter(self._known)))

    def _drop(self, directory: int) -> None:
        known = self._known.pop(directory, None)
        if known is not None:
            self.size -= _size(known[1])


def _size(columns: EntryColumns) -> int:
    return _OVERHEAD_BYTES + sum(map(len, columns))
