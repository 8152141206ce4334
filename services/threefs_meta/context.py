"""The parts of the service that operations use."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from threefs.cluster.chunk_client import Applied, ListedChunk
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.env.clock import Clock
from threefs.env.random import Random
from threefs.errors import Throttled
from threefs.ids import ChainId, InodeId
from threefs.kv import retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.layout import FileLayout
from threefs.routing import Routing
from threefs.telemetry.damaged_records import DamagedRecords
from threefs.wire import manager_pb2
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.lease.delegation import Creator
from threefs_meta.lease.logical_clock import LogicalClock
from threefs_meta.listing_cache import ListingCache
from threefs_meta.quota.quota_limits import Quotas
from threefs_meta.statistics import Statistics
from threefs_meta.store.inode_numbers import InodeAllocator, OutOfNumbers, TakenNumbers
from threefs_meta.store.namespace import Namespace
from threefs_meta.tick_queue import QueueFronts

T = TypeVar("T")

#: No transaction needs more than a block of inode numbers, unless others take some of it, or it is too large.
_MAX_REFILLS = 8

#: How long an operation may wait for chunks. The deadline of the caller may end it earlier.
CHUNKS_TIMEOUT_S = 20.0


class FileChunks(Protocol):
    """The part that the meta service needs of `threefs.cluster.chunk_client.ChunkClient`."""

    async def file_length(self, layout: FileLayout, inode: InodeId, *, chains: int = 0, timeout_s: float) -> int: ...

    def listing(
        self, layout: FileLayout, inode: InodeId, first: int = 0, *, chains: int = 0, timeout_s: float
    ) -> AsyncIterator[tuple[ChainId, list[ListedChunk]]]: ...

    def chain_listing(
        self, chain: ChainId, inode: InodeId, after: int, deadline: float
    ) -> AsyncIterator[list[ListedChunk]]: ...

    async def apply(self, updates: Sequence[ChunkUpdate], *, timeout_s: float) -> list[Applied]: ...


@dataclass(frozen=True, slots=True)
class Context:
    engine: Engine
    chunks: FileChunks
    allocator: InodeAllocator
    logical_clock: LogicalClock
    routing: Callable[[], Routing]  # the newest snapshot
    status: Callable[[], Awaitable[manager_pb2.GetStatusReply]]  # of the cluster, from the manager
    clock: Clock
    random: Random
    first_inode: Callable[[], int] = lambda: 0  # that was given out since the store was made, or restored
    quotas: Quotas = field(default_factory=Quotas)
    statistics: Statistics = field(default_factory=Statistics)
    listing_cache: ListingCache = field(default_factory=ListingCache)
    fronts: QueueFronts = field(default_factory=QueueFronts)
    damaged: DamagedRecords = field(default_factory=lambda: DamagedRecords("`threefs fsck` names what is damaged"))
    started_at: float = 0.0  # monotonic time of the clock

    def namespace(
        self,
        tx: Transaction,
        memo: TxnMemo | None = None,
        creator: Creator | None = None,
        numbers: TakenNumbers | None = None,
    ) -> Namespace:
        """The namespace for a transaction that changes something, or for one step of it."""
        numbers = numbers or TakenNumbers(self.allocator, retry.Outcome())
        return Namespace(tx, self.logical_clock.stamp(), self.random, self.quotas, memo, creator, numbers)

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        timeout_s: float = retry.TIMEOUT_S,
        refill: Callable[[int], Awaitable[None]] | None = None,
        outcome: retry.Outcome | None = None,
    ) -> T:
        """Run `work` in a transaction until that commits (`threefs.kv.retry.run`). Returns what it returned. `refill`
        gets so many inode numbers when none is left; without it, the allocator does, or its error is raised.

        `work` may run several times, also after a commit of unknown outcome: it must find out in its transaction
        whether an earlier run was committed, or do the same again. `outcome` keeps what is known of the change.
        """
        outcome = outcome or retry.Outcome()

        async def attempt(tx: Transaction) -> T:
            await self.logical_clock.catch_up()  # also between two attempts the store may have been away
            return await work(tx)

        for _ in range(_MAX_REFILLS):
            try:
                return await retry.run(
                    self.engine,
                    attempt,
                    clock=self.clock,
                    random=self.random,
                    timeout_s=timeout_s,
                    replayable=True,
                    outcome=outcome,
                )
            except OutOfNumbers as error:
                least = error.least
            await (refill or self.allocator.refill)(least)
        raise Throttled("other calls take all inode numbers")
