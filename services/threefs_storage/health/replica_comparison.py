"""Comparing the committed versions of a target with its neighbours in the chain (I3, I4).

They are equal except for changes in flight. A target that diverges in two comparisons leaves the chain and returns by
resync. It diverges if it is behind a neighbour, or if it has another content under the same version as its predecessor,
which is the authority in a resync. Only versions, lengths and checksums are compared; whether the bytes match them is
what each target's scrubber checks.
"""

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.ids import ChunkId, TargetId
from threefs.paging import next_place
from threefs.rpc.methods import SCAN_CHUNKS
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chunk_listing import GOOD, REMOVED, scan_chunks
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_CALL_S = 5.0
_SECOND_COMPARISON_S = 2.0
_SHOWN = 8  # chunks in a line of the log
_COMPARED_TWICE = 64  # suspects: it leaves for one of them, and each takes calls to its neighbours
_LOG = structlog.get_logger()


class CommittedRow(NamedTuple):
    """The committed version of a chunk."""

    version: int
    length: int  # bytes
    checksum: int
    removed: bool = False


#: The row of a chunk without a record. A tombstone counts as the same, because targets collect it one after the other.
_NOTHING = CommittedRow(0, 0, 0, removed=True)


class Comparison:
    """Compares the targets of this process with others."""

    def __init__(self, peers: PeerTargets, *, clock: Clock) -> None:
        self._peers = peers
        self._clock = clock

    async def check(self, target: Target, after: ChunkId | None, last: ChunkId | None) -> None:
        """Let the target leave its chain if chunks behind `after`, up to and including `last`, diverge here."""
        divergent = await self.find_divergent(target, after, last)
        if not divergent or len(target.chain.serving) < 2 or target.has_failed:
            return
        _LOG.error(
            "a target diverges from its neighbours: it leaves, and returns by resync",
            target=target.target_id,
            chunks=divergent[:_SHOWN],
            count=len(divergent),
        )
        target.leave_divergent(f"{len(divergent)} chunks differ from those of the chain, the first is {divergent[0]}")

    async def find_divergent(self, target: Target, after: ChunkId | None, last: ChunkId | None) -> list[ChunkId]:
        """Chunks behind `after`, up to and including `last` (None: to the end), that diverge at this target.

        An empty list if they cannot be compared now.
        """
        if not target.serving or len(target.chain.serving) < 2:
            return []
        try:
            return await self._compare_twice(target, after, last)
        except ThreefsError:
            return []

    async def _compare_twice(self, target: Target, after: ChunkId | None, last: ChunkId | None) -> list[ChunkId]:
        suspects: set[ChunkId] = set()
        for neighbour, is_predecessor in _neighbours(target):
            suspects |= await self._divergent_from(target, neighbour, is_predecessor, after, last)
        if not suspects:
            return []
        await self._clock.sleep(_SECOND_COMPARISON_S)
        divergent: set[ChunkId] = set()
        for chunk in sorted(suspects)[:_COMPARED_TWICE]:
            for neighbour, is_predecessor in _neighbours(target):
                divergent |= await self._divergent_from(target, neighbour, is_predecessor, _before(chunk), chunk)
        return sorted(divergent & suspects)

    async def _divergent_from(
        self, target: Target, neighbour: TargetId, is_predecessor: bool, after: ChunkId | None, last: ChunkId | None
    ) -> set[ChunkId]:
        chain_version = target.chain.version
        admission.check(target, chain_version)
        mine = _own_rows(target, after, last)
        theirs = await self._fetch_rows(target, neighbour, after, last)
        admission.check(target, chain_version)
        assert target.chain.version == chain_version, "rows are compared within one chain version (I5)"
        still = _own_rows(target, after, last)
        found = set()
        for chunk in mine.keys() | theirs.keys():
            own, other = mine.get(chunk, _NOTHING), theirs.get(chunk, _NOTHING)
            settled = own is not None and other is not None and own == still.get(chunk, _NOTHING)
            if settled and chunk not in target.locks and is_divergent(own, other, by_predecessor=is_predecessor):
                found.add(chunk)
        return found

    async def _fetch_rows(
        self, target: Target, neighbour: TargetId, after: ChunkId | None, last: ChunkId | None
    ) -> dict[ChunkId, CommittedRow | None]:
        found: dict[ChunkId, CommittedRow | None] = {}
        while True:
            request = pb.ScanChunksRequest(target=neighbour, chain_version=target.chain.version, removed=True)
            if after is not None:
                request.behind, request.inode, request.index = True, after.inode, after.number
            reply = await self._peers.call(neighbour, SCAN_CHUNKS, request, timeout_s=_CALL_S)
            found |= _rows(reply, last)
            end = ChunkId(reply.last_inode, reply.last_index)
            # To the end, one page is enough: who lacks as many chunks leaves for the first of them.
            if not reply.more or last is None or end >= last:
                return found
            after = next_place(f"chunks of target {neighbour}", after, end)


def is_divergent(own: CommittedRow | None, other: CommittedRow | None, *, by_predecessor: bool) -> bool:
    """Whether a target diverges, by the row of its predecessor or of its successor."""
    if own is None or other is None or own == other or (own.removed and other.removed):
        return False
    return other.version >= own.version if by_predecessor else other.version > own.version


def _neighbours(target: Target) -> list[tuple[TargetId, bool]]:
    """The serving neighbours, and whether each is the predecessor. Raises NotServing: the target may have left."""
    admission.check(target, target.chain.version)
    serving = target.chain.serving
    place = serving.index(target.target_id)
    return [(t, True) for t in serving[place - 1 : place]] + [(t, False) for t in serving[place + 1 : place + 2]]


def _own_rows(target: Target, after: ChunkId | None, last: ChunkId | None) -> Mapping[ChunkId, CommittedRow | None]:
    found: dict[ChunkId, CommittedRow | None] = {}
    while True:
        reply = scan_chunks(target, after, 0, removed=True)
        found |= _rows(reply, last)
        after = ChunkId(reply.last_inode, reply.last_index)
        if not reply.more or (last is not None and after >= last):
            return found


def _rows(reply: pb.ScanChunksReply, last: ChunkId | None) -> dict[ChunkId, CommittedRow | None]:
    """The rows of a page; None for a chunk that is being changed or known to be damaged."""
    columns = zip(
        reply.inode, reply.index, reply.version, reply.length, reply.checksum, reply.pending, reply.health, strict=True
    )
    return {
        ChunkId(inode, index): _row(version, length, checksum, pending, health)
        for inode, index, version, length, checksum, pending, health in columns
        if last is None or ChunkId(inode, index) <= last
    }


def _row(version: int, length: int, checksum: int, pending: bool, health: int) -> CommittedRow | None:
    if pending or health not in (GOOD, REMOVED):
        return None
    return CommittedRow(version, length, checksum, health == REMOVED)


def _before(chunk: ChunkId) -> ChunkId | None:
    """The highest possible chunk before this one in key order."""
    if chunk.number:
        return ChunkId(chunk.inode, chunk.number - 1)
    return ChunkId(chunk.inode - 1, 0xFFFFFFFF) if chunk.inode else None
