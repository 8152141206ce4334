"""Which chunks the targets of a chain have, compared page by page."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from threefs.cluster.chunk_client import ChunkClient
from threefs.errors import NotServing, Unavailable
from threefs.ids import ChunkId, InodeId, TargetId
from threefs.layout import FileLayout
from threefs.paging import next_place
from threefs.routing import Chain, Routing
from threefs.rpc.methods import SCAN_CHUNKS, Method, Rep, Req
from threefs.wire import storage_pb2 as pb

PAGE_ROWS = 1024
CALL_S = 20.0
FILE_S = 60.0
#: Health of a copy, as its target knows it. DAMAGED: not repaired yet; REMOVED: a tombstone.
GOOD, DAMAGED, LOST, REMOVED = range(4)


class StorageCalls(Protocol):
    """The part that is needed of threefs.rpc.connection_pool.ConnectionPool."""

    async def call(self, address: str, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The record of a chunk on one target. Version 0: nothing is committed, or the record cannot be read."""

    version: int
    length: int  # bytes
    checksum: int
    pending: bool
    health: int = field(default=GOOD, compare=False)


#: The record of a chunk on each serving target; None: it has none.
ReplicaStates = Mapping[TargetId, ReplicaState | None]


class _Replica:
    """One target's chunks in the order of their keys."""

    def __init__(self, calls: StorageCalls, address: str, target: TargetId, chain_version: int) -> None:
        self._calls = calls
        self._address = address
        self._target = target
        self._chain_version = chain_version
        self._fetched: dict[ChunkId, ReplicaState] = {}
        self._after: ChunkId | None = None
        self._more = True

    async def take(self, last: ChunkId | None) -> tuple[dict[ChunkId, ReplicaState], ChunkId | None]:
        """The chunks up to and including `last`; with None, the next page.

        Also the chunk up to which the result is complete; None: there are no more.
        """
        while self._more and (last is None or self._after is None or self._after < last):
            await self._fetch()
            if last is None:
                break
        if last is None:
            rows, self._fetched = self._fetched, {}
            return rows, self._after if self._more else None
        rows = {chunk: row for chunk, row in self._fetched.items() if chunk <= last}
        for chunk in rows:
            del self._fetched[chunk]
        return rows, last

    async def rest(self) -> dict[ChunkId, ReplicaState]:
        while self._more:
            await self._fetch()
        rows, self._fetched = self._fetched, {}
        return rows

    async def _fetch(self) -> None:
        reply = await scan(self._calls, self._address, self._target, self._chain_version, self._after, PAGE_ROWS)
        self._fetched |= _rows(reply)
        self._more = reply.more
        if reply.more:
            end = ChunkId(reply.last_inode, reply.last_index)
            self._after = next_place(f"chunks of target {self._target}", self._after, end)


async def chunks(calls: StorageCalls, routing: Routing, chain: Chain) -> AsyncIterator[dict[ChunkId, ReplicaStates]]:
    """All chunks of a chain, in pages. The tail is read first: it commits first, and the others have a version by then.

    Raises ChainChanged, NotServing, Unavailable.
    """
    serving = chain.serving
    if not serving:
        raise Unavailable(f"chain {chain.chain_id} has no serving target")
    replicas = {target: _replica(calls, routing, chain, target) for target in reversed(serving)}
    tail = serving[-1]
    more = True
    while more:
        first, last = await replicas[tail].take(None)
        more = last is not None
        found = {tail: first}
        for target in serving[:-1]:
            found[target] = (await replicas[target].take(last))[0] if more else await replicas[target].rest()
        yield {
            chunk: {target: found[target].get(chunk) for target in serving}
            for chunk in sorted(set().union(*found.values()))
        }


async def replica_states(calls: StorageCalls, routing: Routing, chain: Chain, chunk: ChunkId) -> ReplicaStates:
    """The records of one chunk on every serving target, as of now."""
    seen: dict[TargetId, ReplicaState | None] = {}
    for target in reversed(chain.serving):
        address = _address(routing, target)
        reply = await scan(calls, address, target, chain.version, _before(chunk), 1)
        seen[target] = _rows(reply).get(chunk)
    return seen


async def scan(
    calls: StorageCalls,
    address: str,
    target: TargetId,
    chain_version: int,
    behind: ChunkId | None,
    limit: int,
    *,
    removed: bool = False,
) -> pb.ScanChunksReply:
    """A page of the chunks of a target; with `removed`, of tombstones too."""
    request = pb.ScanChunksRequest(target=target, chain_version=chain_version, limit=limit, removed=removed)
    if behind is not None:
        request.behind, request.inode, request.index = True, behind.inode, behind.number
    return await calls.call(address, SCAN_CHUNKS, request, timeout_s=CALL_S)


async def end_of_file(chunks: ChunkClient, routing: Routing, layout: FileLayout, inode: InodeId) -> int:
    """Bytes up to the end of the last chunk of a file. A check waits for no chain that has no serving target, file by
    file. Raises NotServing, and what a chain does not answer with."""
    for chain in layout.chains(routing.tables.get(layout.table_id, ())):
        if routing.chains[chain].tail is None:
            raise NotServing(f"{routing.shown_chain(chain)} has no serving target")
    return await chunks.file_length(layout, inode, timeout_s=FILE_S)


def are_consistent(states: ReplicaStates) -> bool:
    """Whether all replicas are equal, or one has a pending version, after which they will be."""
    rows: Sequence[ReplicaState | None] = list(states.values())
    if any(row is not None and row.pending for row in rows):
        return True
    return all(row is not None and row == rows[0] for row in rows)


def damaged(states: ReplicaStates) -> list[TargetId]:
    """Targets that know that their copy is damaged or lost."""
    return [target for target, row in states.items() if row is not None and row.health != GOOD]


def _rows(reply: pb.ScanChunksReply) -> dict[ChunkId, ReplicaState]:
    columns = zip(
        reply.inode, reply.index, reply.version, reply.length, reply.checksum, reply.pending, reply.health, strict=True
    )
    return {ChunkId(inode, index): ReplicaState(*row) for inode, index, *row in columns}


def _before(chunk: ChunkId) -> ChunkId | None:
    """The last possible chunk in front of one."""
    if chunk.number:
        return ChunkId(chunk.inode, chunk.number - 1)
    return ChunkId(chunk.inode - 1, 0xFFFFFFFF) if chunk.inode else None


def _replica(calls: StorageCalls, routing: Routing, chain: Chain, target: TargetId) -> _Replica:
    return _Replica(calls, _address(routing, target), target, chain.version)


def _address(routing: Routing, target: TargetId) -> str:
    address = routing.address_of(target)
    if not address:
        raise Unavailable(f"the storage process of target {target} has not registered yet")
    return address
