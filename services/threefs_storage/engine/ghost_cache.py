"""What large reads have shown of the page cache, which the kernel does not tell.

Asking it by a read that must not wait would be wrong for large ranges: where nothing is cached, that read starts to
fill the cache, which costs more than the direct read that follows.
"""

from threefs_storage.engine.records import Version

_REGION_BYTES = 128 << 10

_Key = tuple[int, int, int, int]


class GhostCache:
    """Parts of versions that were read not long ago: once past the page cache, or through it.

    Two dictionaries, of which the older is forgotten as a whole: bounded, without bookkeeping per access.
    """

    def __init__(self, most: int = 32_768) -> None:
        self._half = max(1, most // 2)
        self._young: dict[_Key, bool] = {}
        self._old: dict[_Key, bool] = {}

    def cached(self, version: Version, offset: int) -> bool:
        """Whether this part went through the page cache, and so may still be there."""
        key = _key(version, offset)
        return self._young.get(key) or self._old.get(key) or False

    def note_read(self, version: Version, offset: int) -> bool:
        """Note that this part is about to be read. If it was read before it is worth caching, and will be."""
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
