"""The record of a chunk, and its encoding.

A record holds at most one committed and one pending version, and the exactly-once entries of the last writes. The
checksums and extents of the pending version are stored by their difference from those of the committed one. Its bytes
end with a CRC32C over the chunk's key and everything before it, which detects every flipped bit, and a record under the
wrong key.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from threefs.checksums import CRC_BYTES, crc32c
from threefs.errors import Corrupt
from threefs.ids import ChunkId, WriteIdentity
from threefs_storage.engine.delta import decode_delta, encode_delta
from threefs_storage.engine.exactly_once import (
    NOTHING_FORGOTTEN,
    WRITE_LIFETIME_MINUTES,
    Forgotten,
    OnceEntry,
    add_entry,
    newest_stamp,
)
from threefs_storage.engine.overlay import EXTENT_BYTES, MAX_EXTENTS, BlobKey, Overlay

_FORMAT = 4
_HEAD = struct.Struct("<BBH")  # format, flags, number of entries
_VERSION = struct.Struct("<QIIIBBBI16sIQI")
_ENTRY = struct.Struct("<16sIQQIII")
_COUNT = struct.Struct("<H")
_FORGOTTEN = struct.Struct("<QI")
_DIGEST = struct.Struct("<IB")
_OVERLAY = struct.Struct("<IH")  # length of the base, number of extents
_CRC = struct.Struct("<I")


class _Forms(NamedTuple):
    """The encodings of the parts of a record."""

    head: struct.Struct
    version: struct.Struct
    entry: struct.Struct
    counter: struct.Struct


#: Format 1 has no stamps; formats 1 and 2 have no overlays; formats 1 to 3 have no deltas.
_FORMS = {
    1: _Forms(struct.Struct("<BBB"), struct.Struct("<QIIIBBBI16sIQ"), struct.Struct("<16sIQQII"), struct.Struct("<B")),
    2: _Forms(_HEAD, _VERSION, _ENTRY, _COUNT),
    3: _Forms(_HEAD, _VERSION, _ENTRY, _COUNT),
    _FORMAT: _Forms(_HEAD, _VERSION, _ENTRY, _COUNT),
}

_HAS_COMMITTED, _HAS_PENDING, _HAS_INCOMING, _HAS_FORGOTTEN = 1, 2, 4, 8
_REMOVED, _HAS_IDENTITY, _LOST, _HAS_OVERLAY, _IS_DELTA = 1, 2, 4, 8, 16
_NO_BLOCK = 0xFF
_NO_CLIENT = bytes(16)


class Block(NamedTuple):
    """A place in a data file: slot number `slot` of the file with blocks of `1 << bits` bytes."""

    bits: int
    slot: int


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a chunk's content."""

    version: int
    chain_version: int
    length: int  # bytes
    checksum: int  # CRC32C of all of them
    block: Block | None  # None if there are no bytes in a block
    checksum_block_bytes: int
    block_checksums: bytes  # CRC32C of each checksum block, 4 bytes each
    removed: bool = False  # a tombstone: the chunk does not exist, but its next version is above this one
    identity: WriteIdentity | None = None  # of the write that made it
    #: No member of the chain that answered has this content undamaged. Without block and overlay, no byte of it is
    #: here; with them, the checksum blocks that are intact can still be read.
    lost: bool = False
    stamp: int = 0  # when its write was taken, in minutes of the chain's time
    overlay: Overlay | None = None  # None if the block has all bytes; the checksums are those of the whole content

    @property
    def has_bytes(self) -> bool:
        """Whether bytes of the content are here."""
        return self.block is not None or self.overlay is not None

    @property
    def base_length(self) -> int:
        """Bytes of the content that the block has, at its beginning. An overlay may cover some of them."""
        if self.overlay is not None:
            return self.overlay.base_length
        return self.length if self.block is not None else 0

    @property
    def content(self) -> tuple[int, int, int, bool]:
        """The fields that are equal in all copies of a version."""
        return self.version, self.length, self.checksum, self.removed


@dataclass(frozen=True, slots=True)
class Record:
    committed: Version | None = None
    pending: Version | None = None
    entries: tuple[OnceEntry, ...] = ()  # of committed writes, oldest first
    incoming_entries: tuple[OnceEntry, ...] | None = None  # replace `entries` when the pending version is committed
    forgotten: Forgotten = NOTHING_FORGOTTEN
    incoming_forgotten: Forgotten = NOTHING_FORGOTTEN

    @property
    def blobs(self) -> Mapping[int, int]:
        """The number of each blob that the versions name, and its bytes."""
        found: Mapping[int, int] = {}
        for version in (self.committed, self.pending):
            if version is not None and version.overlay is not None:
                found = {**found, **version.overlay.blobs} if found else version.overlay.blobs
        return found

    @property
    def blocks(self) -> set[Block]:
        """The blocks that the versions name."""
        versions = (self.committed, self.pending)
        return {version.block for version in versions if version is not None and version.block is not None}

    def free_blob(self, chunk: ChunkId) -> BlobKey:
        """A blob that no version names. Its number is the lowest one: a record has four bytes for it, and a chunk may
        change for years."""
        used = self.blobs
        return BlobKey(chunk, next(number for number in count(1) if number not in used))

    def with_copy(self, version: Version, other: Version) -> "Record":
        """The record with another copy of its committed or pending version."""
        if version == self.committed:
            return replace(self, committed=other)
        return replace(self, pending=other)

    def entry(self, client: bytes, channel: int) -> OnceEntry | None:
        """The result of the last committed write of this channel."""
        for entry in reversed(self.entries):
            if entry.channel == channel and entry.client == client:
                return entry
        return None

    def after_commit(self, chain_version: int) -> "Record":
        """The record once the pending version is committed."""
        pending, before = self.pending, self.committed
        assert pending is not None, "what is committed was pending"
        if before is not None and before.chain_version == pending.chain_version:
            assert pending.version >= before.version, "versions never fall within a chain version (I4)"
        entries, forgotten = self.next_entries
        if pending.identity is not None:
            result = OnceEntry(*pending.identity, pending.version, pending.length, pending.checksum, pending.stamp)
            entries, forgotten = add_entry(entries, forgotten, result)
        committed = pending if pending.chain_version == chain_version else replace(pending, chain_version=chain_version)
        return Record(committed, None, entries, None, forgotten)

    @property
    def next_entries(self) -> tuple[tuple[OnceEntry, ...], Forgotten]:
        """The results that count when the pending version is committed, without its own."""
        if self.incoming_entries is not None:
            return self.incoming_entries, self.incoming_forgotten
        if self.pending is not None and self.collectable(self.pending.stamp):
            return (), NOTHING_FORGOTTEN  # other replicas may have collected the tombstone
        return self.entries, self.forgotten

    def collectable(self, now: int) -> bool:
        """Whether the chunk is removed, and no write from before the removal can still arrive."""
        if self.committed is None or not self.committed.removed:
            return False
        return now - max(newest_stamp(self.entries), self.committed.stamp) > WRITE_LIFETIME_MINUTES

    @property
    def newest_stamp(self) -> int:
        versions = (version.stamp for version in (self.committed, self.pending) if version is not None)
        return max(newest_stamp(self.entries), *versions, 0)


def digest(record: Record) -> int:
    """A checksum of everything that is equal on all replicas, besides committed version and content checksum."""
    committed = record.committed
    if committed is None:
        return 0
    entries = b"".join(_ENTRY.pack(*entry) for entry in record.entries)
    state = committed.removed + _LOST * committed.lost
    return crc32c(_DIGEST.pack(committed.length, state) + entries + _FORGOTTEN.pack(*record.forgotten))


def encode(chunk: ChunkId, record: Record) -> bytes:
    flags = (
        (_HAS_COMMITTED if record.committed else 0)
        | (_HAS_PENDING if record.pending else 0)
        | (_HAS_INCOMING if record.incoming_entries is not None else 0)
        | (_HAS_FORGOTTEN if record.forgotten.version else 0)
    )
    parts = [_HEAD.pack(_FORMAT, flags, len(record.entries))]
    if record.committed is not None:
        parts.append(_encode_version(record.committed, None))
    if record.pending is not None:
        parts.append(_encode_version(record.pending, record.committed))
    parts += [_ENTRY.pack(*entry) for entry in record.entries]
    if record.forgotten.version:
        parts.append(_FORGOTTEN.pack(*record.forgotten))
    if record.incoming_entries is not None:
        parts.append(_COUNT.pack(len(record.incoming_entries)))
        parts += [_ENTRY.pack(*entry) for entry in record.incoming_entries]
        parts.append(_FORGOTTEN.pack(*record.incoming_forgotten))
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(chunk.key() + body))


def decode(chunk: ChunkId, data: bytes) -> Record:
    """Raises Corrupt for anything that `encode` did not write for this chunk."""
    if len(data) < _HEAD.size + _CRC.size:
        raise Corrupt(f"the record of chunk {chunk} is cut off")
    body = data[: -_CRC.size]
    if crc32c(chunk.key() + body) != _CRC.unpack_from(data, len(body))[0]:
        raise Corrupt(f"the record of chunk {chunk} does not match its checksum")
    if body[0] not in _FORMS:
        raise Corrupt(f"the record of chunk {chunk} has format {body[0]}, which this program does not know")
    try:
        return _decode_body(chunk, body)
    except (struct.error, ValueError) as error:
        raise Corrupt(f"the record of chunk {chunk} cannot be decoded: {error}") from None


def corrected(chunk: ChunkId, data: bytes) -> Record | None:
    """The record before one of its bits was flipped; None if no single flipped bit explains the damage.

    Each flipped bit changes the CRC in another way, so at most one explains the damage. Other damage looks like a
    flipped bit by chance in about one of 10,000 cases, so the caller must confirm the result by the content that it
    names.
    """
    body = bytearray(chunk.key() + data[: -_CRC.size])
    stored = int.from_bytes(data[-_CRC.size :], "little")
    if (crc32c(body) ^ stored).bit_count() == 1:
        return _readable(chunk, body)
    for at in range(len(chunk.key()), len(body)):
        for bit in range(8):
            body[at] ^= 1 << bit
            if crc32c(body) == stored:
                return _readable(chunk, body)
            body[at] ^= 1 << bit
    return None


def _readable(chunk: ChunkId, keyed: bytes | bytearray) -> Record | None:
    try:
        return decode(chunk, bytes(keyed[len(chunk.key()) :]) + _CRC.pack(crc32c(keyed)))
    except Corrupt:
        return None


def _encode_version(version: Version, base: Version | None) -> bytes:
    """With `base`, by the difference from it."""
    flags = (
        (_REMOVED if version.removed else 0)
        | (_HAS_IDENTITY if version.identity else 0)
        | (_LOST if version.lost else 0)
        | (_HAS_OVERLAY if version.overlay is not None else 0)
        | (_IS_DELTA if base is not None else 0)
    )
    bits, slot = version.block or (_NO_BLOCK, 0)
    identity = version.identity or (_NO_CLIENT, 0, 0)
    return (
        _VERSION.pack(
            version.version,
            version.chain_version,
            version.length,
            version.checksum,
            flags,
            version.checksum_block_bytes.bit_length() - 1,
            bits,
            slot,
            *identity,
            version.stamp,
        )
        + (version.block_checksums if base is None else _checksum_delta(base, version))
        + (_encode_overlay(version.overlay, base) if version.overlay is not None else b"")
    )


def _checksum_delta(base: Version, version: Version) -> bytes:
    return encode_delta(base.block_checksums, version.block_checksums, CRC_BYTES)


def _encode_overlay(overlay: Overlay, base: Version | None) -> bytes:
    assert overlay.count <= MAX_EXTENTS, "an overlay is bounded (I20)"
    head = _OVERLAY.pack(overlay.base_length, overlay.count)
    return head + (overlay.row if base is None else encode_delta(_row(base.overlay), overlay.row, EXTENT_BYTES))


def _row(overlay: Overlay | None) -> bytes:
    return overlay.row if overlay is not None else b""


def _decode_body(chunk: ChunkId, body: bytes) -> Record:
    forms = _FORMS[body[0]]
    _, flags, entry_count = forms.head.unpack_from(body)
    at = forms.head.size
    committed = pending = incoming = None
    forgotten = incoming_forgotten = NOTHING_FORGOTTEN
    if flags & _HAS_COMMITTED:
        committed, at = _decode_version(forms, chunk, body, at, None)
    if flags & _HAS_PENDING:
        pending, at = _decode_version(forms, chunk, body, at, committed)
    entries, at = _decode_entries(forms, body, at, entry_count)
    if flags & _HAS_FORGOTTEN:
        forgotten, at = Forgotten(*_FORGOTTEN.unpack_from(body, at)), at + _FORGOTTEN.size
    if flags & _HAS_INCOMING:
        incoming, at = _decode_entries(forms, body, at + forms.counter.size, forms.counter.unpack_from(body, at)[0])
        if forms is not _FORMS[1]:
            incoming_forgotten, at = Forgotten(*_FORGOTTEN.unpack_from(body, at)), at + _FORGOTTEN.size
    if at != len(body):
        raise ValueError(f"{len(body) - at} bytes are left over")
    return Record(committed, pending, entries, incoming, forgotten, incoming_forgotten)


def _decode_version(forms: _Forms, chunk: ChunkId, body: bytes, at: int, base: Version | None) -> tuple[Version, int]:
    fields = forms.version.unpack_from(body, at)
    number, chain_version, length, checksum, flags, checksum_bits, bits, slot, client, channel, seq, *stamp = fields
    at += forms.version.size
    if not flags & _IS_DELTA:
        base = None
    elif base is None:
        raise ValueError("the version from which another one differs is missing")
    crcs, at = _decode_row(base.block_checksums if base else None, body, at, -(-length >> checksum_bits), CRC_BYTES)
    overlay = None
    if flags & _HAS_OVERLAY:
        overlay, at = _decode_overlay(chunk, body, at, base)
        overlay.check(length, has_block=bits != _NO_BLOCK)
    version = Version(
        number,
        chain_version,
        length,
        checksum,
        None if bits == _NO_BLOCK else Block(bits, slot),
        1 << checksum_bits,
        crcs,
        bool(flags & _REMOVED),
        WriteIdentity(client, channel, seq) if flags & _HAS_IDENTITY else None,
        bool(flags & _LOST),
        stamp[0] if stamp else 0,
        overlay,
    )
    return version, at


def _decode_row(base: bytes | None, body: bytes, at: int, items: int, item_bytes: int) -> tuple[bytes, int]:
    """So many items, whole or by their difference from `base`, and where they end."""
    size = items * item_bytes
    if base is not None:
        return decode_delta(base, body, at, size, item_bytes)
    if at + size > len(body):
        raise ValueError("checksums or extents are missing")
    return body[at : at + size], at + size


def _decode_overlay(chunk: ChunkId, body: bytes, at: int, base: Version | None) -> tuple[Overlay, int]:
    base_length, count = _OVERLAY.unpack_from(body, at)
    if count > MAX_EXTENTS:
        raise ValueError(f"an overlay has {count} extents, {MAX_EXTENTS} are the most")
    before = _row(base.overlay) if base is not None else None
    row, end = _decode_row(before, body, at + _OVERLAY.size, count, EXTENT_BYTES)
    return Overlay(chunk, base_length, row), end


def _decode_entries(forms: _Forms, body: bytes, at: int, count: int) -> tuple[tuple[OnceEntry, ...], int]:
    end = at + count * forms.entry.size
    return tuple(OnceEntry(*forms.entry.unpack_from(body, i)) for i in range(at, end, forms.entry.size)), end
