"""The new content of a chunk after a change: its length, checksums and parts. Pure: no bytes are moved here."""

import enum
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache

from threefs.checksums import CRC_BYTES, Buffer, after_change, append, combine, crc32c
from threefs.errors import InvalidArgument, VersionGap
from threefs.ids import ChunkId, WriteIdentity
from threefs.layout import MAX_CHUNK_BYTES
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.exactly_once import NOTHING_FORGOTTEN, Forgotten, OnceEntry

_FEW_BLOCKS = 2  # of a change whose effect on the checksum of the content costs less than the sum of all blocks


class Kind(enum.IntEnum):
    """As on the wire."""

    WRITE = 1  # payload at offset; a gap before it reads as zeros
    TRUNCATE = 2  # to length: cut, or extend with zeros
    EXTEND = 3  # to at least length, with zeros
    REMOVE = 4
    REPLACE = 5  # the whole content, with given version and entries


#: Called before the record of a change is written, long after the change has begun if the disk is slow. It raises
#: NotServing if the change is void by then.
Check = Callable[[], None]


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
    check: Check | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ContentPlan:
    """New content: the first `keep` bytes of the old one, then zeros up to `length`, and the payload over them at
    `offset`."""

    length: int
    keep: int
    offset: int
    payload: int  # bytes of it

    @property
    def end(self) -> int:
        """Where the payload ends."""
        return self.offset + self.payload

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


def check_order(chunk: ChunkId, record: Record, update: Update) -> None:
    """Raises VersionGap if the change does not apply to this record."""
    committed = record.committed
    if update.kind == Kind.REPLACE:
        if (
            committed is not None
            and committed.chain_version == update.chain_version
            and committed.version > update.version
        ):
            raise VersionGap(
                f"version {update.version} of chunk {chunk} is older than {committed.version}, of one chain version"
            )
        return
    if record.pending is not None:
        raise VersionGap(f"version {record.pending.version} of chunk {chunk} is still pending")
    next_version = (committed.version if committed is not None else 0) + 1
    absent = committed is None or (committed.removed and committed.version < update.version)
    if update.version != next_version and not (update.fresh and absent):
        raise VersionGap(f"version {update.version} of chunk {chunk} cannot follow {next_version - 1}")


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


def partly_kept_blocks(old_length: int, size: int, plan: ContentPlan) -> list[int]:
    """The checksum blocks of which some old bytes stay and others go: their new checksums need the bytes that stay."""
    candidates = {plan.keep // size} if plan.keep < old_length else set()
    if plan.payload:
        candidates |= {plan.offset // size, (plan.end - 1) // size}
    return sorted(block for block in candidates if _is_partly_kept(block * size, old_length, size, plan))


def _is_partly_kept(begin: int, old_length: int, size: int, plan: ContentPlan) -> bool:
    kept_end = min(begin + size, plan.keep)
    if kept_end <= begin:
        return False
    if kept_end < min(begin + size, old_length):
        return True
    overlaps = plan.offset < kept_end and plan.end > begin
    return overlaps and not (plan.offset <= begin and plan.end >= kept_end)


def changed_checksums(
    old: Version | None, size: int, plan: ContentPlan, payload: memoryview, kept: Mapping[int, Buffer]
) -> tuple[bytes, int]:
    """The block checksums and the checksum of the new content, computed from the new bytes and from `kept`: the old
    bytes of each of the `partly_kept_blocks`."""
    old_length = old.length if old is not None else 0
    count = -(-plan.length // size)
    crcs = bytearray(old.block_checksums if old is not None else b"")[: count * CRC_BYTES]
    crcs.extend(bytes(count * CRC_BYTES - len(crcs)))
    grown = range(old_length // size, count if plan.length > old_length else 0)
    written = range(plan.offset // size, -(-plan.end // size) if plan.payload else 0)
    changed = {*kept, *written, *grown}
    for block in changed:
        begin, end = block * size, min((block + 1) * size, plan.length)
        checksum, at = 0, begin
        kept_end = min(end, plan.keep)
        if block in kept:
            checksum, at = crc32c(_merged(kept[block], begin, kept_end, plan, payload)), kept_end
        elif kept_end > begin and not (plan.offset < kept_end and plan.end > begin):
            checksum, at = int.from_bytes(crcs[block * CRC_BYTES : (block + 1) * CRC_BYTES], "little"), kept_end
        while at < end:
            if plan.offset <= at < plan.end:
                stop = min(end, plan.end)
                piece = crc32c(payload[at - plan.offset : stop - plan.offset])
            else:
                stop = min(end, plan.offset) if at < plan.offset else end
                piece = _crc_of_zeros(stop - at)
            checksum = append(checksum, piece, stop - at) if at > begin else piece
            at = stop
        crcs[block * CRC_BYTES : (block + 1) * CRC_BYTES] = checksum.to_bytes(CRC_BYTES, "little")
    packed = bytes(crcs)
    return packed, _checksum_after(old, plan.length, size, packed, changed)


def _checksum_after(old: Version | None, length: int, size: int, crcs: bytes, changed: Set[int]) -> int:
    """The checksum of content with these checksums of blocks; `changed` are those that differ from the old content."""
    if not length:
        return 0
    last = (length - 1) % size + 1
    if old is None or old.lost or old.length != length or len(changed) > _FEW_BLOCKS:
        return combine(crcs, size, last)
    return after_change(old.checksum, old.block_checksums, crcs, changed, size, last)


def _merged(old: Buffer, begin: int, end: int, plan: ContentPlan, payload: memoryview) -> bytearray:
    """The new bytes from `begin` to `end`, the end of what is kept; `old` begins there, too."""
    merged = bytearray(memoryview(old)[: end - begin])
    first, last = max(begin, plan.offset), min(end, plan.end)
    if first < last:
        merged[first - begin : last - begin] = payload[first - plan.offset : last - plan.offset]
    return merged


@lru_cache(maxsize=256)
def _crc_of_zeros(length: int) -> int:
    return crc32c(bytes(length))


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


def with_pending(record: Record, pending: Version, update: Update) -> Record:
    """The record with a version that was staged."""
    shipped = update.entries if update.kind == Kind.REPLACE else None
    return Record(record.committed, pending, record.entries, shipped, record.forgotten, update.forgotten)
