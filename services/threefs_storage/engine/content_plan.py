"""The new content of a chunk after a change: its length, checksums and parts. Pure: no bytes are moved here."""

import enum
from dataclasses import dataclass

from threefs.checksums import CRC_BYTES, append, combine, crc32c
from threefs.errors import InvalidArgument
from threefs.ids import WriteIdentity
from threefs.layout import MAX_CHUNK_BYTES
from threefs_storage.engine.exactly_once import NOTHING_FORGOTTEN, Forgotten, OnceEntry
from threefs_storage.engine.records import Version


class Kind(enum.IntEnum):
    """As on the wire."""

    WRITE = 1  # payload at offset; a gap before it reads as zeros
    TRUNCATE = 2  # to length: cut, or extend with zeros
    EXTEND = 3  # to at least length, with zeros
    REMOVE = 4
    REPLACE = 5  # the whole content, with given version and entries


@dataclass(frozen=True, slots=True)
class Update:
    """A change of a chunk."""

    kind: int  # Kind
    version: int  # the version that it makes
    chain_version: int
    offset: int = 0  # bytes into the chunk
    length: int = 0  # bytes of payload, or the new length
    checksum: int = 0  # CRC32C of the payload
    chunk_bytes: int = 1 << 20  # the most this chunk may ever hold
    identity: WriteIdentity | None = None
    removed: bool = False  # of REPLACE: the new version is a tombstone
    admitted: bool = False  # a predecessor has it already: it may use the reserve of the disk
    entries: tuple[OnceEntry, ...] | None = None  # of REPLACE: they replace the entries here ...
    forgotten: Forgotten = NOTHING_FORGOTTEN  # ... and this replaces what is forgotten here
    stamp: int = 0  # when the head took the write, in minutes of the chain's logical time
    fresh: bool = False  # the chunk did not exist at the predecessor: the version may be any
    lost: bool = False  # of REPLACE: no member has the content; bytes of exactly that version are kept here


@dataclass(frozen=True, slots=True)
class ContentPlan:
    """New content: the first `keep` bytes of the old one, then zeros up to `length`, and the payload over them at
    `offset`."""

    length: int
    keep: int
    offset: int
    payload: int  # bytes of it

    @property
    def whole(self) -> bool:
        """Whether the payload is all of the new content."""
        return self.payload == self.length

    def appends(self, old_length: int) -> bool:
        """Whether the old content stays, and all new bytes come after it."""
        return self.keep == old_length and self.length >= old_length and (not self.payload or self.offset >= old_length)


def plan(old_length: int, update: Update) -> ContentPlan:
    """Raises InvalidArgument if the change would not fit into the chunk."""
    kind, offset, length = update.kind, update.offset, update.length
    if kind == Kind.WRITE:
        result = ContentPlan(max(old_length, offset + length), old_length, offset, length)
    elif kind == Kind.TRUNCATE:
        result = ContentPlan(length, min(old_length, length), 0, 0)
    elif kind == Kind.EXTEND:
        result = ContentPlan(max(old_length, length), old_length, 0, 0)
    elif kind == Kind.REMOVE:
        result = ContentPlan(0, 0, 0, 0)
    elif kind == Kind.REPLACE:
        result = ContentPlan(length, 0, 0, length)
    else:
        raise InvalidArgument(f"kind {kind} of a change is not known")
    if kind != Kind.REMOVE and not 0 < update.chunk_bytes <= MAX_CHUNK_BYTES:
        raise InvalidArgument(
            f"chunks of {update.chunk_bytes} bytes: their size must be between 1 and {MAX_CHUNK_BYTES} bytes"
        )
    if min(offset, length) < 0 or result.length > update.chunk_bytes:
        raise InvalidArgument(
            f"{result.length} bytes do not fit into a chunk of {update.chunk_bytes} (offset {offset}, length {length})"
        )
    assert result.keep <= min(old_length, result.length), "kept bytes are in the old content and in the new one"
    assert result.offset + result.payload <= result.length, "the payload lies within the new content"
    return result


def keeps_content(old_length: int, kind: int, offset: int, length: int, chunk_bytes: int) -> bool:
    """Whether a change keeps a part of the old content. An old length of 0 means that the length is not known."""
    if kind == Kind.WRITE:
        return offset > 0 or length < (old_length or chunk_bytes)
    return kind == Kind.EXTEND or (kind == Kind.TRUNCATE and length > 0)


def replacement(
    version: Version, entries: tuple[OnceEntry, ...] | None = None, forgotten: Forgotten = NOTHING_FORGOTTEN
) -> Update:
    """The change that writes a whole version again, from another copy of its content."""
    return Update(
        kind=Kind.REPLACE,
        version=version.version,
        chain_version=version.chain_version,
        length=version.length,
        checksum=version.checksum,
        chunk_bytes=version.checksum_block_bytes << 8,
        identity=version.identity,
        removed=version.removed,
        entries=entries,
        forgotten=forgotten,
        stamp=version.stamp,
        admitted=True,
    )


def extended_checksums(old: Version, zeros: bytes, payload: memoryview) -> tuple[bytes, int]:
    """The block checksums and the checksum of `old` followed by zeros and payload, computed from the new bytes
    alone."""
    size = old.checksum_block_bytes
    crcs = [
        int.from_bytes(old.block_checksums[at : at + CRC_BYTES], "little")
        for at in range(0, len(old.block_checksums), CRC_BYTES)
    ]
    at = old.length
    for part in (memoryview(zeros), payload):
        done = 0
        while done < len(part):
            take = min(size - at % size, len(part) - done)
            piece = crc32c(part[done : done + take])
            if at % size:
                crcs[-1] = append(crcs[-1], piece, take)
            else:
                crcs.append(piece)
            at += take
            done += take
    packed = b"".join(crc.to_bytes(CRC_BYTES, "little") for crc in crcs)
    return packed, combine(packed, size, (at - 1) % size + 1)


def covering(version: Version, offset: int, length: int) -> tuple[int, int]:
    """Begin and end of the whole checksum blocks around a range."""
    size = version.checksum_block_bytes
    begin = offset - offset % size
    return begin, min(-(-(offset + length) // size) * size, version.length)


def expected_checksum(version: Version, begin: int, end: int) -> int:
    """The checksum that the whole checksum blocks from `begin` to `end` should have."""
    if end - begin == version.length:
        return version.checksum
    size = version.checksum_block_bytes
    first = begin // size * CRC_BYTES
    if end - begin <= size:
        return int.from_bytes(version.block_checksums[first : first + CRC_BYTES], "little")
    last = -(-end // size) * CRC_BYTES
    return combine(version.block_checksums[first:last], size, (end - 1) % size + 1)
