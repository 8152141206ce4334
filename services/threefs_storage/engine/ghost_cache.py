"""A ghost cache: which large ranges were read not long ago, and so may be in the page cache of the kernel.

A read that must not wait (RWF_NOWAIT) could find that out, but for large ranges it costs more than the direct read that
follows: where nothing is cached, it starts to fill the page cache.
"""

from threefs_storage.engine.chunk_record import Version

_REGION_BYTES = 128 << 10

_Key = tuple[int, int, int, int]


class GhostCache:
    """Ranges of versions that were read not long ago, and whether through the page cache or past it.

    It has two dictionaries. When the young one is full it replaces the old one, so the memory is bounded without work
    per access.
    """

    def __init__(self, most: int = 32_768) -> None:
        self._half = max(1, most // 2)
        self._young: dict[_Key, bool] = {}
        self._old: dict[_Key, bool] = {}

    def cached(self, version: Version, offset: int) -> bool:
        """Whether this range was read through the page cache, and so may still be there."""
        key = _key(version, offset)
        return self._young.get(key) or self._old.get(key) or False

    def note_read(self, version: Version, offset: int) -> bool:
        """Note that this range is about to be read. True if it was read before: then it is worth caching."""
        key = _key(version, offset)
        again = key in self._young or key in self._old
        if len(self._young) >= self._half:
            self._old = self._young
            self._young = {}
        self._young[key] = again
        return again


def _key(version: Version, offset: int) -> _Key:
    bits, slot = version.block or (0, 0)
    return bits, slot, version.version, offset // _REGION_BYTES
