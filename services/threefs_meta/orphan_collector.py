"""Removes orphans: chunks of inodes that were removed for good. A write that arrives after all else of its file has
gone may leave one.

An inode is there before the first chunk of its file, and goes after the last one, and its number is used once. So a
chunk that is seen, and whose inode is looked for after that and is not there, belongs to nobody. Two kinds of chunks
are left to `threefs fsck`: after a restore of the metadata, those of all inodes of before, because somebody may still
find a newer backup; and those with numbers that were never given out.

Passes are slow and far apart. Each meta service looks at its share of the chains.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from threefs.background import BackgroundTasks
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import ThreefsError
from threefs.ids import ROOT, ChainId, ChunkId, NodeId
from threefs.layout import DEFAULT_CHUNK_BYTES
from threefs.paging import next_place
from threefs.routing import NodeKind, Routing
from threefs.rpc.methods import SCAN_CHUNKS, Method, Rep, Req
from threefs.wire import storage_pb2
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context
from threefs_meta.store import keys
from threefs_meta.store.counters import read_counter
from threefs_meta.store.identity import first_inode, read_record
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

#: The first pass begins so long after the start, unless passes are closer to each other.
_FIRST_S = 600.0
_PAGE = 1024  # chunks
_PAUSE_S = 0.05  # between pages: the disks and the store have other work

_LOG = structlog.get_logger()


class Tails(Protocol):
    """The part that is needed of `threefs.cluster.chunk_client.ChunkClient`."""

    async def ask_tail(
        self, chain: ChainId, method: Method[Req, Rep], request: Callable[[int, int], Req], deadline: float
    ) -> Rep: ...


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The inode numbers that this store has given out since it was made, or restored."""

    first: int
    end: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number < self.end


class OrphanCollector:
    def __init__(self, context: Context, tails: Tails, node_id: Callable[[], int], interval_s: float) -> None:
        """`node_id` is that of this service."""
        self.removed_chunks = 0
        self._context = context
        self._tails = tails
        self._node_id = node_id
        self._interval_s = interval_s
        self._interval_changed = asyncio.Event()
        self._background = BackgroundTasks()

    def set_interval(self, interval_s: float) -> None:
        """The pause that has begun begins anew, with this length."""
        self._interval_s = interval_s
        self._interval_changed.set()

    def start(self) -> None:
        self._background.start("orphan collector", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        most_s = _FIRST_S
        while True:
            self._interval_changed.clear()
            try:
                async with asyncio.timeout(min(most_s, self._interval_s)):
                    await self._interval_changed.wait()
            except TimeoutError:
                await self.collect()
                most_s = math.inf

    async def collect(self) -> int:
        """One pass. Returns how many chunks were removed."""
        removed = 0
        for chain in own_share(self._context.routing(), self._node_id()):
            try:
                removed += await self._collect_chain(chain)
            except ThreefsError as error:  # the next pass comes to it again
                _LOG.info("a chain cannot be searched for orphans now", chain=chain, error=str(error))
        self.removed_chunks += removed
        return removed

    async def _collect_chain(self, chain: ChainId) -> int:
        removed = 0
        after: ChunkId | None = None
        while True:
            page = await self._scan(chain, after)
            seen = [ChunkId(inode, index) for inode, index in zip(page.inode, page.index, strict=True)]
            orphans = await self._orphans(seen)
            if orphans:
                updates = [
                    ChunkUpdate(chain, chunk, storage_pb2.REMOVE, DEFAULT_CHUNK_BYTES, freed=True) for chunk in orphans
                ]
                await self._context.chunks.apply(updates, timeout_s=CHUNKS_TIMEOUT_S)
                _LOG.warning(
                    "chunks of removed files were left, and are removed now",
                    chain=chain,
                    chunks=len(orphans),
                    inodes=sorted({chunk.inode for chunk in orphans})[:8],
                )
                removed += len(orphans)
            if not page.more:
                return removed
            after = next_place(f"chunks of chain {chain}", after, ChunkId(page.last_inode, page.last_index))
            await self._context.clock.sleep(_PAUSE_S)

    async def _scan(self, chain: ChainId, after: ChunkId | None) -> storage_pb2.ScanChunksReply:
        """The next chunks of all files on a chain, as its tail has them: behind `after`, or the first."""
        inode, index = after or (0, 0)

        def request(target: int, version: int) -> storage_pb2.ScanChunksRequest:
            return storage_pb2.ScanChunksRequest(
                target=target, chain_version=version, behind=after is not None, inode=inode, index=index, limit=_PAGE
            )

        deadline = self._context.clock.monotonic() + CHUNKS_TIMEOUT_S
        return await self._tails.ask_tail(chain, SCAN_CHUNKS, request, deadline)

    async def _orphans(self, seen: list[ChunkId]) -> list[ChunkId]:
        """Those whose inode does not exist. A record that cannot be read exists."""

        async def absent(ns: Namespace) -> set[int]:
            given_out = await _given_out(ns)
            asked = sorted({chunk.inode for chunk in seen if chunk.inode in given_out})
            found = await ns.tx.get_many([keys.inode(number) for number in asked], snapshot=True)
            return {number for number, record in zip(asked, found, strict=True) if record is None}

        gone = await run_readonly(self._context, absent) if seen else set()
        assert ROOT not in gone, "the store has its root, so what it lacks is gone"
        return [chunk for chunk in seen if chunk.inode in gone]


def own_share(routing: Routing, node_id: int) -> list[ChainId]:
    """The chains that the meta service with this number looks at: those of each service differ."""
    services = sorted(node.node_id for node in routing.nodes.values() if node.kind is NodeKind.META)
    if node_id not in services:
        return []
    return sorted(routing.chains)[services.index(NodeId(node_id)) :: len(services)]


async def _given_out(ns: Namespace) -> _Numbers:
    record = await read_record(ns.tx)
    if record is None:  # the store is not admitted yet
        return _Numbers(0, 0)
    numbers = _Numbers(first_inode(record), await read_counter(ns.tx, keys.NEXT_INODE))
    assert numbers.first <= numbers.end, "a restore raises the numbers together with the epoch (I15)"
    return numbers
