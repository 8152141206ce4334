"""Changes of chunks as a client makes them, and which of them become one. Pure.

Every change costs each replica of its chain a version, a record and a part of a sync. So writes of one chunk that lie
near each other are joined to one change of several pieces; the head of the chain puts the pieces over the bytes that
are committed between them. Writes far from each other stay apart: what lies between is written again by every replica.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeVar

from threefs.checksums import crc32c, crc32c_behind
from threefs.errors import ChunkLost, Retry, ThreefsError
from threefs.ids import ChainId, ChunkId
from threefs.routing import PublicState, Routing
from threefs.rpc.handshake import WRITE_PIECES_FEATURE
from threefs.wire import storage_pb2

Buffer = bytes | bytearray | memoryview
R = TypeVar("R")

#: Bytes between two pieces, in proportion to the smaller one: a change of its own costs more than copying these.
_MOST_GAP = 4
#: As many as storage services take (`threefs_storage.chain.pieces`).
_MOST_PIECES = 256
#: Small payloads of pieces are put together, because each part of a message costs time. Larger ones would take memory
#: that nobody counts: a caller may have any amount to write.
_MOST_COPIED_BYTES = 16 << 10
_IN_SYNC = (PublicState.SERVING, PublicState.SYNCING)


@dataclass(frozen=True, slots=True)
class ChunkUpdate:
    """One change of one chunk."""

    chain: ChainId
    chunk: ChunkId
    kind: storage_pb2.WriteKind
    chunk_bytes: int
    offset: int = 0  # bytes into the chunk
    length: int = 0  # bytes of payload, or the new length
    payload: Buffer = b""
    only_version: int = 0  # refused with ChunkChanged if the chunk has another one by then; 0: any
    fence: int = 0  # refused with StaleFence if the fence of the inode is as high by then; 0: whatever that is
    pieces: tuple[int, ...] = ()  # of a joined change: offset and length of each write, in the order of the payload
    freed: bool = False  # of REMOVE: no file has the chunk any more, so its chain may have too few replicas for writes
    parts: tuple[Buffer, ...] = ()  # the payload in parts, if it is not in one piece: it is not copied

    @property
    def payload_parts(self) -> Sequence[Buffer]:
        """The payload, for a message."""
        return self.parts or ((self.payload,) if self.payload else ())

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.payload_parts))

    def checksum(self) -> int:
        """CRC32C of the payload; 0 if there is none."""
        if not self.parts:
            return crc32c(self.payload) if self.payload else 0
        return reduce(lambda checksum, part: crc32c_behind(checksum, bytes(part)), self.parts, 0)


class Joined(NamedTuple):
    """A change that stands for so many updates, in their order."""

    update: ChunkUpdate
    updates: int


def takes_pieces(routing: Routing, chain: ChainId, has_feature: Callable[[str, int], bool]) -> bool:
    """Whether every member that may become the head while a change goes on is known to take WRITE_PIECES."""
    known = routing.chains.get(chain)
    members = known.members if known is not None else ()
    addresses = [routing.address_of(each.target_id) for each in members if each.state in _IN_SYNC]
    return bool(addresses) and all(has_feature(each, WRITE_PIECES_FEATURE) for each in addresses)


def is_final(error: ThreefsError, routing: Routing, chain: ChainId) -> bool:
    """Whether no repeat of a change will have another result. Bytes are lost for as long as no member has them: one
    that does not serve in this routing may have them, and return."""
    known = routing.chains.get(chain)
    if isinstance(error, ChunkLost) and known is not None and len(known.serving) < len(known.members):
        return False
    return error.retry is Retry.NEVER


def cut(rows: Iterable[R], size_of: Callable[[R], int], most_bytes: int, most_rows: int) -> Iterator[list[R]]:
    """The rows in parts of so many bytes and rows at most, unless one row has more bytes."""
    part, size = list[R](), 0
    for row in rows:
        grown = size + size_of(row)
        if part and (grown > most_bytes or len(part) == most_rows):
            yield part
            part, grown = [], size_of(row)
        part.append(row)
        size = grown
    if part:
        yield part


def join(updates: Iterable[ChunkUpdate], may_join: Callable[[ChainId], bool]) -> list[Joined]:
    """Join writes that follow each other, lie in one chunk and near each other, where the chain takes such changes."""
    found: list[Joined] = []
    group: list[ChunkUpdate] = []
    for update in updates:
        fits = bool(group) and len(group) < _MOST_PIECES and _belong_together(group[-1], update)
        if group and not (fits and may_join(update.chain)):
            found.append(_joined(group))
            group = []
        group.append(update)
    if group:
        found.append(_joined(group))
    return found


def _belong_together(one: ChunkUpdate, other: ChunkUpdate) -> bool:
    gap = other.offset - (one.offset + one.length)
    return (
        one.chunk == other.chunk
        and one.kind == other.kind == storage_pb2.WRITE
        and (one.chain, one.fence, one.chunk_bytes) == (other.chain, other.fence, other.chunk_bytes)
        and not (one.only_version or other.only_version)
        and min(one.length, other.length) > 0
        and 0 <= gap <= _MOST_GAP * min(one.length, other.length)
    )


def _joined(group: list[ChunkUpdate]) -> Joined:
    first = group[0]
    if len(group) == 1:
        return Joined(first, 1)
    length = sum(update.length for update in group)
    touch = first.offset + length == group[-1].offset + group[-1].length  # nothing lies between: it is a plain write
    parts = tuple(update.payload for update in group)
    payload = b"".join(parts) if length <= _MOST_COPIED_BYTES else b""
    update = ChunkUpdate(
        first.chain,
        first.chunk,
        storage_pb2.WRITE if touch else storage_pb2.WRITE_PIECES,
        first.chunk_bytes,
        first.offset,
        length,
        payload,
        pieces=tuple(number for update in group for number in (update.offset, update.length)),
        parts=() if payload else parts,
        fence=first.fence,
    )
    return Joined(update, len(group))
