"""The chunk client: changes and lists chunks through their chains. Used by the client library and the meta service.

Every change has one write identity, however often it is sent (invariant I6): it goes to the head of the chain, again
and again under that identity, until it is answered for good or the deadline has passed. Then the outcome is unknown.

Changes of one chunk by one client are made one after the other. So a single channel is enough, a client never fills
more than one of the few exactly-once entries of a chunk record, and an abandoned write that arrives late is refused.
A change names the newest version known when it was made. It is refused and made anew where later results are forgotten.
"""

import asyncio
import operator
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol, cast

from threefs.background import cancel_and_wait
from threefs.backoff import Backoff
from threefs.bounded_dict import BoundedDict
from threefs.byte_budget import ByteBudget
from threefs.cluster import chunk_update, routing_watcher
from threefs.cluster.attempts_at_heads import Attempt, AttemptsAtHeads
from threefs.cluster.chunk_update import Buffer, ChunkUpdate
from threefs.cluster.routing_watcher import RoutingSource, await_table
from threefs.cluster.write_coalescer import WriteCoalescer
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    ChunkChanged,
    DeadlineExceeded,
    NotServing,
    OutcomeUnknown,
    ResultDropped,
    ResultForgotten,
    Retry,
    StaleFence,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
    error_of,
)
from threefs.ids import ChainId, ChunkId, ClientId, InodeId
from threefs.layout import FileLayout, end_of
from threefs.paging import next_place
from threefs.routing import Routing
from threefs.rpc import methods
from threefs.rpc.methods import Method, Rep, Req
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.wait_log import chunk_waits
from threefs.transfer_time import transfer_s
from threefs.wire import common_pb2, storage_pb2

_CHANNEL = 1
_LIST_LIMIT = 4096
_MAX_VERSIONS = 1024


class Calls(Protocol):
    """The part of `threefs.rpc.connection_pool.ConnectionPool` that is used here."""

    async def call(
        self, address: str, method: Method[Req, Rep], request: Req, *, timeout_s: float, payload: Sequence[Buffer] = ()
    ) -> Rep: ...

    def has_feature(self, address: str, feature: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    request_bytes: int = 8 << 20  # payload of one request
    request_rows: int = 1024
    in_flight_bytes: int = 64 << 20  # payload sent and not yet answered, of one Chunks object
    attempt_timeout_s: float = 10.0  # and the time of its bytes; then the same write is sent again, maybe elsewhere
    first_pause_s: float = 0.02  # doubles with every attempt
    longest_pause_s: float = 1.0


class ListedChunk(NamedTuple):
    """A chunk of a listing."""

    number: int
    length: int  # bytes
    version: int
    checksum: int | None  # CRC32C of its bytes; None: the storage service is too old to tell


@dataclass(frozen=True, slots=True)
class Applied:
    version: int
    length: int  # bytes in the chunk at that version


class _Row:
    """An update on its way."""

    __slots__ = (
        *("applied", "checksum", "error", "first_seq", "known_version", "outcome_unknown"),
        *("seq", "shortage", "to_send", "update"),
    )

    def __init__(self, update: ChunkUpdate) -> None:
        self.update = update
        self.checksum = update.checksum()
        self.seq = 0
        self.first_seq = 0  # where it was refused under an earlier number
        self.known_version = 0  # of the chunk, when the change was made
        self.to_send = True  # still to be sent
        self.outcome_unknown = False  # an attempt of which nothing is known was made
        self.applied: Applied | None = None
        self.error: ThreefsError | None = None
        self.shortage = ""  # what the chain has said that lacked replicas

    def failed(self, error: ThreefsError, routing: Routing) -> None:
        self.error = error
        if isinstance(error, TooFewReplicas):
            self.shortage = error.message
        if error.retry is Retry.UNKNOWN or isinstance(error, ResultDropped):
            self.outcome_unknown = True
        if chunk_update.is_final(error, routing, self.update.chain):
            self.give_up()

    def done(self, applied: Applied) -> None:
        self.applied, self.error, self.to_send = applied, None, False

    def give_up(self, routing: Routing | None = None) -> None:
        self.to_send = False
        says_as_much = isinstance(self.error, ChunkChanged | StaleFence)
        if self.outcome_unknown and not says_as_much:
            chunk, why = self.update.chunk, ""
            if routing is not None and isinstance(self.error, DeadlineExceeded):  # silence says nothing by itself
                why = self.shortage or routing.shortage(self.update.chain)
            self.error = OutcomeUnknown(
                f"change of chunk {chunk.number} of inode {chunk.inode} was not confirmed, "
                f"it may or may not have been applied; last error: {self.error}{why and '; '}{why}"
            )


class ChunkClient:
    def __init__(
        self,
        calls: Calls,
        cluster: RoutingSource,
        client: ClientId,
        *,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        limits: ChunkLimits | None = None,
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._client = bytes(client)
        self._clock = clock
        self._random = random
        self._limits = limits or ChunkLimits()
        self._budget = ByteBudget(self._limits.in_flight_bytes)
        self._backoff = Backoff(self._limits.first_pause_s, self._limits.longest_pause_s)
        self._wait_log = chunk_waits(LibraryLogger(__name__), "changed")
        self._attempts = AttemptsAtHeads(cluster)
        self._coalescer = WriteCoalescer(self._call, self._limits.request_bytes, self._limits.request_rows, clock=clock)
        self._seq = 0
        self._newest_versions = BoundedDict[ChunkId, int](_MAX_VERSIONS)  # the newest versions that were seen here
        self._locked: dict[ChunkId, asyncio.Future[None]] = {}  # chunks that are being changed

    def chain_of(self, layout: FileLayout, number: int) -> ChainId:
        return layout.chain_of(self._cluster.routing.tables.get(layout.table_id, ()), number)

    async def write(
        self, layout: FileLayout, inode: InodeId, number: int, offset: int, payload: Buffer, *, timeout_s: float
    ) -> Applied:
        """Put `payload` at `offset` of a chunk; a gap before it reads as zeros.

        Durable on all replicas when it returns. Raises OutcomeUnknown when the deadline passed after an attempt that
        may have had its effect.
        """
        return await self._change(
            layout, inode, number, storage_pb2.WRITE, timeout_s, offset, memoryview(payload).nbytes, payload
        )

    async def truncate(
        self, layout: FileLayout, inode: InodeId, number: int, length: int, *, timeout_s: float
    ) -> Applied:
        """Make a chunk exactly `length` bytes long."""
        return await self._change(layout, inode, number, storage_pb2.TRUNCATE, timeout_s, length=length)

    async def extend(
        self, layout: FileLayout, inode: InodeId, number: int, length: int, *, timeout_s: float
    ) -> Applied:
        """Make a chunk at least `length` bytes long."""
        return await self._change(layout, inode, number, storage_pb2.EXTEND, timeout_s, length=length)

    async def remove(self, layout: FileLayout, inode: InodeId, number: int, *, timeout_s: float) -> Applied:
        return await self._change(layout, inode, number, storage_pb2.REMOVE, timeout_s)

    async def _change(
        self,
        layout: FileLayout,
        inode: InodeId,
        number: int,
        kind: storage_pb2.WriteKind,
        timeout_s: float,
        offset: int = 0,
        length: int = 0,
        payload: Buffer = b"",
    ) -> Applied:
        chain = self.chain_of(layout, number)
        update = ChunkUpdate(chain, ChunkId(inode, number), kind, layout.chunk_bytes, offset, length, payload)
        return (await self.apply([update], timeout_s=timeout_s))[0]

    async def file_length(self, layout: FileLayout, inode: InodeId, *, chains: int = 0, timeout_s: float) -> int:
        """Bytes up to the end of the last chunk that exists, asked of the first `chains` of the stripe (0: of all)."""
        last = await self.last_chunk(layout, inode, chains=chains, timeout_s=timeout_s)
        return end_of(layout.chunk_bytes, *last) if last else 0

    async def last_chunk(
        self, layout: FileLayout, inode: InodeId, *, chains: int = 0, timeout_s: float
    ) -> tuple[int, int] | None:
        """(number, length in bytes) of the highest chunk, or None."""
        deadline = self._clock.monotonic() + timeout_s

        async def ask(chain: ChainId) -> storage_pb2.LastChunkReply:
            return await self.ask_tail(
                chain,
                methods.LAST_CHUNK,
                lambda target, version: storage_pb2.LastChunkRequest(target=target, chain_version=version, inode=inode),
                deadline,
            )

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(chain)) for chain in await self._stripe(layout, chains, timeout_s)]
        except ExceptionGroup as failures:  # callers know the one error tree, not groups of it
            raise failures.exceptions[0] from None
        return max(((t.result().index, t.result().length) for t in tasks if t.result().found), default=None)

    async def listing(
        self, layout: FileLayout, inode: InodeId, first: int = 0, *, chains: int = 0, timeout_s: float
    ) -> AsyncIterator[tuple[ChainId, list[ListedChunk]]]:
        """Chunks from number `first` on, in pages of one chain.

        Only the first `chains` of the stripe are asked (0: all).
        """
        deadline = self._clock.monotonic() + timeout_s
        for chain in await self._stripe(layout, chains, timeout_s):
            async for page in self.chain_listing(chain, inode, first, deadline):
                yield chain, page

    async def chain_listing(
        self, chain: ChainId, inode: InodeId, after: int, deadline: float
    ) -> AsyncIterator[list[ListedChunk]]:
        """The same of one chain."""
        while True:
            reply = await self.ask_tail(chain, methods.LIST_CHUNKS, _list_request(inode, after), deadline)
            if reply.index:
                columns = (reply.index, reply.length, reply.version, reply.checksum or [None] * len(reply.index))
                yield list(starmap(ListedChunk, zip(*columns, strict=True)))
            if not reply.more:
                break
            after = next_place("chunks", after - 1, max(reply.index, default=None)) + 1

    async def page(
        self, layout: FileLayout, inode: InodeId, first: int = 0, *, chains: int = 0, timeout_s: float
    ) -> tuple[list[tuple[int, int]], int]:
        """The next few chunks from number `first` on, of all chains in one order: ([(number, length), ...], where to go
        on; 0: there are no more)."""
        deadline = self._clock.monotonic() + timeout_s
        asked = [
            asyncio.ensure_future(self.ask_tail(chain, methods.LIST_CHUNKS, _list_request(inode, first), deadline))
            for chain in await self._stripe(layout, chains, timeout_s)
        ]
        try:
            replies = [await reply for reply in asked]
        finally:
            await cancel_and_wait(*asked)
        # Behind the end of the shortest page there may be chunks of that chain which nobody has seen yet.
        ends = [next_place("chunks", first - 1, max(reply.index, default=None)) for reply in replies if reply.more]
        following = min(ends) + 1 if ends else 0
        rows = sorted(row for reply in replies for row in zip(reply.index, reply.length, strict=True))
        return [row for row in rows if not following or row[0] < following], following

    async def _stripe(self, layout: FileLayout, chains: int, timeout_s: float) -> list[ChainId]:
        await await_table(self._cluster, layout.table_id, timeout_s, self._clock)
        return sorted(set(layout.chains(self._cluster.routing.tables[layout.table_id])[: chains or None]))

    async def ask_tail(
        self, chain: ChainId, method: Method[Req, Rep], request: Callable[[int, int], Req], deadline: float
    ) -> Rep:
        """Call the tail of a chain, which alone knows what is committed (rule R1), until it answers. `request` gets its
        target and the version of the chain."""
        attempt = 0
        while True:
            routing = self._cluster.routing
            try:
                known = routing.chains.get(chain)
                if known is None or known.tail is None:
                    raise NotServing(f"{routing.shown_chain(chain)} has no serving target")
                address = _address(routing, known.tail)
                return await self._calls.call(
                    address, method, request(known.tail, known.version), timeout_s=self._attempt_s(deadline)
                )
            except ThreefsError as error:
                if error.retry is Retry.NEVER or self._clock.monotonic() >= deadline:
                    raise
            await self._pause(routing.version, attempt, deadline)
            attempt += 1

    # ---- changes ----

    async def apply(self, updates: Sequence[ChunkUpdate], *, timeout_s: float) -> list[Applied]:
        """Make all changes, in one request per storage process as far as the limits allow.

        Changes of one chunk are made in the order given, all others in any order. All of them have come to an end when
        this returns or raises the first error, in the order of `updates`.
        """
        outcomes = await self.apply_each(updates, timeout_s=timeout_s)
        if errors := [outcome for outcome in outcomes if isinstance(outcome, ThreefsError)]:
            raise errors[0]
        return cast(list[Applied], outcomes)

    async def apply_each(self, updates: Sequence[ChunkUpdate], *, timeout_s: float) -> list[Applied | ThreefsError]:
        """The same, with the result or the error of each change."""
        deadline = self._clock.monotonic() + timeout_s
        joined = chunk_update.join(updates, self._takes_pieces)
        rows = [_Row(update) for update, _ in joined]
        waiting = rows
        while waiting:
            locked, waiting = self._lock_chunks(waiting)
            if not locked:
                await self._wait_for_others(waiting, deadline)
                waiting = [row for row in waiting if row.to_send]
                continue
            try:
                await self._send_until_done(locked, deadline)
            finally:
                self._unlock_chunks(locked)
        assert all(row.error or row.applied for row in rows), "a row without error was applied"
        return [
            row.error or cast(Applied, row.applied)
            for row, (_, count) in zip(rows, joined, strict=True)
            for _ in range(count)
        ]

    def _takes_pieces(self, chain: ChainId) -> bool:
        return chunk_update.takes_pieces(self._cluster.routing, chain, self._calls.has_feature)

    def _lock_chunks(self, rows: list[_Row]) -> tuple[list[_Row], list[_Row]]:
        """Split into rows whose chunk is now ours, and the others. Nobody waits while holding, so no deadlock."""
        locked, others = [], []
        loop = asyncio.get_running_loop()
        for row in rows:
            chunk = row.update.chunk
            if chunk in self._locked:
                others.append(row)
                continue
            self._locked[chunk] = loop.create_future()
            self._assign_identity(row, self._newest_versions.get(chunk, 0))
            locked.append(row)
        return locked, others

    def _assign_identity(self, row: _Row, known_version: int) -> None:
        """Give a change its identity."""
        self._seq += 1
        row.seq, row.known_version = self._seq, known_version

    def _unlock_chunks(self, rows: Iterable[_Row]) -> None:
        for row in rows:
            self._locked.pop(row.update.chunk).set_result(None)

    async def _wait_for_others(self, rows: list[_Row], deadline: float) -> None:
        holders = [self._locked[row.update.chunk] for row in rows]
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await asyncio.wait(set(holders), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            for row in rows:
                row.error, row.to_send = DeadlineExceeded("other writes of the same chunk took all the time"), False

    async def _send_until_done(self, rows: list[_Row], deadline: float) -> None:
        """Send until every row has an end."""
        attempt, began = 0, self._clock.monotonic()
        while True:
            version = self._cluster.routing.version
            await self._send_all(rows, deadline)
            rows = [row for row in rows if row.to_send]
            error = rows[0].error if rows else None
            self._wait_log.attempted(error, began, self._clock.monotonic(), deadline)
            if not rows:
                return
            if self._clock.monotonic() >= deadline:
                for row in rows:
                    row.give_up(self._cluster.routing)
                return
            await self._pause(version, attempt, deadline)
            attempt += 1

    async def _send_all(self, rows: list[_Row], deadline: float) -> None:
        routing = self._cluster.routing
        parts = list(self._parts(routing, rows))
        if len(parts) == 1:
            await self._send(routing, *parts[0], deadline)
            return
        async with asyncio.TaskGroup() as group:
            for address, part in parts:
                group.create_task(self._send(routing, address, part, deadline))

    def _parts(self, routing: Routing, rows: list[_Row]) -> Iterable[tuple[str, list[_Row]]]:
        """Rows by address of their head, cut where a request would become too large."""
        by_address: dict[str, list[_Row]] = {}
        for row in rows:
            chain = routing.chains.get(row.update.chain)
            if chain is None or chain.head is None:
                row.failed(NotServing(f"{routing.shown_chain(row.update.chain)} has no serving target"), routing)
                continue
            try:
                by_address.setdefault(_address(routing, chain.head), []).append(row)
            except Unavailable as error:
                row.failed(error, routing)
        for address, group in by_address.items():
            of_row = operator.attrgetter("update.payload_bytes")
            for part in chunk_update.cut(group, of_row, self._limits.request_bytes, self._limits.request_rows):
                yield address, part

    async def _send(self, routing: Routing, address: str, rows: list[_Row], deadline: float) -> None:
        payload = [part for row in rows for part in row.update.payload_parts]
        hops = max(len(routing.chains[row.update.chain].members) for row in rows) - 1
        request, timeout_s = self._request(routing, rows), self._attempt_s(deadline, sum(map(len, payload)), hops)
        alone = any(row.outcome_unknown for row in rows)  # the service may still be at it
        try:
            async with Attempt(self._attempts, {row.update.chain for row in rows}, routing):
                results = await self._coalescer.write(address, request, payload, timeout_s, alone=alone)
        except ThreefsError as error:
            for row in rows:
                row.failed(error, routing)
            return
        for row, result in zip(rows, results, strict=True):
            if result.code:
                row.failed(error_of(result.code, result.message), routing)
                if result.code == ResultForgotten.code and not row.outcome_unknown:
                    row.first_seq = row.first_seq or row.seq
                    self._assign_identity(row, result.version)
            else:
                row.done(Applied(result.version, result.length))
                self._newest_versions.put(row.update.chunk, result.version)

    async def _call(
        self, address: str, request: storage_pb2.WriteRequest, payload: Sequence[Buffer], timeout_s: float
    ) -> storage_pb2.WriteReply:
        size = sum(map(len, payload))
        await self._budget.take(size)
        try:
            return await self._calls.call(address, methods.WRITE, request, timeout_s=timeout_s, payload=payload)
        finally:
            self._budget.give(size)

    def _request(self, routing: Routing, rows: list[_Row]) -> storage_pb2.WriteRequest:
        request = storage_pb2.WriteRequest()
        for row in rows:
            update, chain = row.update, routing.chains[row.update.chain]
            request.writes.add(
                target=chain.head,
                chain_version=chain.version,
                chunk=common_pb2.ChunkId(inode=update.chunk.inode, index=update.chunk.number),
                identity=common_pb2.WriteIdentity(client=self._client, channel=_CHANNEL, seq=row.seq),
                kind=update.kind,
                offset=update.offset,
                length=update.length,
                checksum=row.checksum,
                chunk_bytes=update.chunk_bytes,
                again=row.outcome_unknown,
                known_version=row.known_version,
                first_seq=row.first_seq,
                only_version=update.only_version,
                fence=update.fence,
                freed=update.freed,
                pieces=update.pieces if update.kind == storage_pb2.WRITE_PIECES else (),
            )
        return request

    def _attempt_s(self, deadline: float, size: int = 0, hops: int = 0) -> float:
        attempt_s = self._limits.attempt_timeout_s + transfer_s(size, hops)
        return max(0.001, min(attempt_s, deadline - self._clock.monotonic()))

    async def _pause(self, version: int, attempt: int, deadline: float) -> None:
        pause_s = min(self._backoff.pause_s(attempt, self._random), deadline - self._clock.monotonic())
        await routing_watcher.pause(self._cluster, version, pause_s, self._clock)


def _address(routing: Routing, target: int) -> str:
    address = routing.address_of(target)  # type: ignore[arg-type]
    if not address:
        raise Unavailable(f"the storage process of {routing.shown_target(target)} has not registered yet")  # type: ignore[arg-type]
    return address


def _list_request(inode: int, first: int) -> Callable[[int, int], storage_pb2.ListChunksRequest]:
    return lambda target, version: storage_pb2.ListChunksRequest(
        target=target, chain_version=version, inode=inode, first_index=first, limit=_LIST_LIMIT
    )
