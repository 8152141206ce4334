"""What was read past the page cache not long ago. If it is wanted again it is worth caching."""

from threefs_storage.engine.records import Block

_REGION_BYTES = 128 << 10


class Ghosts:
    """Two dictionaries, the older forgotten as a whole: bounded, without bookkeeping per access."""

    def __init__(self, most: int = 16_384) -> None:
        self._half = max(1, most // 2)
        self._young: set[tuple[Block, int]] = set()
        self._old: set[tuple[Block, int]] = set()

    def seen(self, block: Block, offset: int) -> bool:
        """Whether this part of the block was asked about before. It is remembered from now on."""
        key = (block, offset // _REGION_BYTES)
        if key in self._young:
            return True
        if len(self._young) >= self._half:
            self._old = self._young
            self._young = set()
        self._young.add(key)
        return key in self._old
