"""The overlay of a version: content that lies in the record store, over a block or without one. Pure.

A small change is kept as a *blob*, bytes under a key of their own in the record store, which become durable in the same
write as the record that names them. An *extent* says which part of a blob is which part of the content. Content is,
from bottom to top: zeros up to the length of the version, the first `base_length` bytes of the block, the extents.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from threefs.ids import ChunkId

#: The most that a record may say, whatever the settings are (I20).
MAX_EXTENTS = 1024
MAX_BLOB_BYTES = 1 << 20

#: The keys of all blobs lie behind those of all chunks, and before those of the notes.
_PREFIX = b"\xff" * 13 + b"b"
_NUMBER = struct.Struct(">I")
_LAST_NUMBER = (1 << 32) - 1

_EXTENT = struct.Struct("<5I")
EXTENT_BYTES = _EXTENT.size
_FIELDS = 5
_BLOB, _BLOB_BYTES = 2, 4  # places of these fields
_KEPT_ROWS = 1024  # whose blobs are kept: those of chunks that are being changed


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

    def packed(self) -> bytes:
        return _EXTENT.pack(*self)

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
    """Its extents are kept packed, as records hold them: a change of one of hundreds copies bytes then, and makes no
    objects of the others."""

    chunk: ChunkId  # whose blobs these are
    base_length: int  # bytes of the block that count; 0 without a block
    row: bytes = b""  # its extents, packed, ascending; no two of them overlap

    @classmethod
    def of(cls, chunk: ChunkId, base_length: int, extents: Iterable[Extent]) -> "Overlay":
        return cls(chunk, base_length, b"".join(extent.packed() for extent in extents))

    @property
    def count(self) -> int:
        """How many extents it has."""
        return len(self.row) // EXTENT_BYTES

    @property
    def extents(self) -> tuple[Extent, ...]:
        return tuple(map(Extent._make, _EXTENT.iter_unpack(self.row)))

    def _extent(self, at: int) -> Extent:
        return Extent._make(_EXTENT.unpack_from(self.row, at * EXTENT_BYTES))

    def _first_from(self, offset: int) -> int:
        """Which extent is the first that begins at that offset or behind it."""
        return bisect_left(range(self.count), offset, key=lambda at: self._extent(at).offset)

    def _first_behind(self, offset: int) -> int:
        """Which extent is the first that ends behind that offset."""
        first = self._first_from(offset)
        return first - 1 if first and self._extent(first - 1).end > offset else first

    def written(self, offset: int, length: int, blob: int) -> "Overlay":
        """With a blob of that length at that offset."""
        if not length:
            return self
        new = Extent(offset, length, blob, 0, length)
        first, last = self._first_behind(offset), self._first_from(new.end)
        parts = [self.row[: first * EXTENT_BYTES], new.packed(), self.row[last * EXTENT_BYTES :]]
        if first < last:  # it hides these, or parts of them
            left, right = self._extent(first), self._extent(last - 1)
            if left.offset < offset:
                parts.insert(1, left.clipped(0, offset).packed())
            if right.end > new.end:
                parts.insert(-1, right.clipped(new.end, right.end).packed())
        return replace(self, row=b"".join(parts))

    def cut(self, length: int) -> "Overlay":
        """Without what lies beyond that length."""
        if self.base_length <= length and not (self.row and self._extent(self.count - 1).end > length):
            return self
        return Overlay.of(self.chunk, min(self.base_length, length), self.within(0, length))

    def within(self, begin: int, end: int) -> Iterator[Extent]:
        """The extents of a range, cut at its ends."""
        if begin < end:
            places = range(self._first_behind(begin), self._first_from(end))
            yield from (self._extent(at).clipped(begin, end) for at in places)

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
        for at in reversed(range(self._first_behind(begin), self._first_from(needed))):
            extent = self._extent(at)
            if extent.end < needed:
                break
            needed = max(begin, extent.offset)
        return needed - begin

    @property
    def blobs(self) -> Mapping[int, int]:
        """The number of each blob, and its bytes."""
        return _blobs_of(self.row)

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


@lru_cache(maxsize=_KEPT_ROWS)
def _blobs_of(row: bytes) -> Mapping[int, int]:
    fields = struct.unpack(f"<{len(row) // EXTENT_BYTES * _FIELDS}I", row)
    return dict(zip(fields[_BLOB::_FIELDS], fields[_BLOB_BYTES::_FIELDS], strict=True))
