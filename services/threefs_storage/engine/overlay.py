"""The overlay of a version: content that lies in the record store, over a block or without one. Pure.

A small change is kept as a *blob*, bytes under a key of their own in the record store, which become durable in the same
write as the record that names them. An *extent* says which part of a blob is which part of the content. Content is,
from bottom to top: zeros up to the length of the version, the first `base_length` bytes of the block, the extents.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from threefs.ids import ChunkId

#: The most that a record may say, whatever the settings are (I20).
MAX_EXTENTS = 1024
MAX_BLOB_BYTES = 1 << 20

#: The keys of all blobs lie behind those of all chunks, and before those of the notes.
_PREFIX = b"\xff" * 13 + b"b"
_NUMBER = struct.Struct(">I")
_LAST_NUMBER = (1 << 32) - 1


class BlobKey(NamedTuple):
    """The name of a blob. Its number is used by no other blob that a record of the chunk names."""

    chunk: ChunkId
    number: int

    def encoded(self) -> bytes:
        """Its key in the record store."""
        return _PREFIX + self.chunk.key() + _NUMBER.pack(self.number)

    @classmethod
    def number_of(cls, key: bytes) -> int:
        """The number in an encoded key."""
        number: int = _NUMBER.unpack(key[-_NUMBER.size :])[0]
        return number


def range_of_blobs(chunk: ChunkId) -> tuple[bytes, bytes]:
    """The first key that blobs of the chunk may have, and one behind the last."""
    return BlobKey(chunk, 0).encoded(), BlobKey(chunk, _LAST_NUMBER).encoded() + b"\0"


class Extent(NamedTuple):
    offset: int  # bytes into the chunk
    length: int  # bytes
    blob: int  # number of the blob
    blob_offset: int  # where the extent begins in the blob
    blob_bytes: int  # of the whole blob

    @property
    def end(self) -> int:
        return self.offset + self.length

    def clipped(self, begin: int, end: int) -> "Extent":
        """The part of it within a range that it overlaps."""
        first, last = max(begin, self.offset), min(end, self.end)
        return Extent(first, last - first, self.blob, self.blob_offset + first - self.offset, self.blob_bytes)


@dataclass(frozen=True, slots=True)
class OverlayLimits:
    """Bounds on overlays: which content goes there, and when a chunk is rewritten."""

    deferred_bytes: int = 64 << 10  # the largest change that is deferred; 0: none, all content is written to blocks
    inline_bytes: int = 16 << 10  # the largest whole content that has no block
    extents: int = 128  # of a version; one more change rewrites the chunk
    stored_bytes: int = 512 << 10  # in the blobs of a version

    def __post_init__(self) -> None:
        assert max(self.deferred_bytes, self.inline_bytes) <= MAX_BLOB_BYTES, "a blob holds a whole change"
        assert self.extents <= MAX_EXTENTS, "a record holds all extents of a version"


@dataclass(frozen=True, slots=True)
class Overlay:
    chunk: ChunkId  # whose blobs these are
    base_length: int  # bytes of the block that count; 0 without a block
    extents: tuple[Extent, ...] = ()  # ascending; no two of them overlap

    def written(self, offset: int, length: int, blob: int) -> "Overlay":
        """With a blob of that length at that offset."""
        if not length:
            return self
        new = Extent(offset, length, blob, 0, length)
        first = bisect_left(self.extents, (offset,))
        if first and self.extents[first - 1].end > offset:
            first -= 1
        last = first
        while last < len(self.extents) and self.extents[last].offset < new.end:
            last += 1
        hit = self.extents[first:last]
        left = [e.clipped(0, offset) for e in hit[:1] if e.offset < offset]
        right = [e.clipped(new.end, e.end) for e in hit[-1:] if e.end > new.end]
        return replace(self, extents=(*self.extents[:first], *left, new, *right, *self.extents[last:]))

    def cut(self, length: int) -> "Overlay":
        """Without what lies beyond that length."""
        return Overlay(self.chunk, min(self.base_length, length), tuple(self.within(0, length)))

    def within(self, begin: int, end: int) -> Iterator[Extent]:
        """The extents of a range, cut at its ends."""
        return (e.clipped(begin, end) for e in self.extents if e.offset < end and e.end > begin)

    def covered(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range that extents cover, ascending; adjacent ones are one."""
        parts: list[tuple[int, int]] = []
        for extent in self.within(begin, end):
            if parts and parts[-1][1] == extent.offset:
                parts[-1] = parts[-1][0], extent.end
            else:
                parts.append((extent.offset, extent.end))
        return parts

    def base_needed(self, begin: int, end: int) -> int:
        """How many bytes of the block, from `begin` on, a read of this range needs: 0 if extents cover them all."""
        needed = max(begin, min(end, self.base_length))
        for extent in reversed(self.extents):
            if extent.end < needed:
                break
            needed = max(begin, min(needed, extent.offset))
        return needed - begin

    @property
    def blobs(self) -> dict[int, int]:
        """The number of each blob, and its bytes."""
        return {extent.blob: extent.blob_bytes for extent in self.extents}

    @property
    def stored_bytes(self) -> int:
        """Bytes of all blobs, also of their parts that no extent shows any more."""
        return sum(self.blobs.values())

    def check(self, length: int, *, has_block: bool) -> None:
        """Raises ValueError if no version of that length has this overlay."""
        if self.base_length > (length if has_block else 0):
            raise ValueError(f"{self.base_length} bytes of a block count, the version has {length}")
        end = 0
        for extent in self.extents:
            if extent.offset < end or not extent.length:
                raise ValueError(f"the extent at {extent.offset} overlaps the one before it, or is empty")
            if extent.blob_offset + extent.length > extent.blob_bytes or extent.blob_bytes > MAX_BLOB_BYTES:
                raise ValueError(f"the extent at {extent.offset} does not fit into its blob")
            end = extent.end
        if end > length:
            raise ValueError(f"extents end at {end}, the version has {length} bytes")
