"""Sending versions and tombstones to the next target of the chain."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from threefs.byte_budget import ByteBudget
from threefs.env.buffers import BufferPool
from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import CorruptChunk, DeadlineExceeded, DiskFailed, NoSpace, ThreefsError, Unavailable, error_of
from threefs.ids import ChunkId, TargetId
from threefs.routing import ChainMember, PublicState
from threefs.rpc.handshake import STAGE_AHEAD_FEATURE
from threefs.rpc.methods import STAGE_AHEAD, WRITE
from threefs.rpc.send_window import MAX_HOPS
from threefs.rpc.traffic_class import TrafficClass
from threefs.transfer_time import transfer_s
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.chain.write_messages import WholeChunk, chunk_id, staged_version
from threefs_storage.engine.chunk_record import Version
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_ATTEMPT_S = 5.0  # and the time of its bytes
#: Bytes of whole chunks on their way to successors at a time. There is one such budget for each number of targets that
#: a chunk has yet to pass: a chunk on its last hop needs no budget of the hops before it, so no circle of targets can
#: wait for each other (see `SendWindow`).
WHOLE_CHUNK_BYTES = 64 << 20


class AheadCall:
    """The call that sends a change ahead to the successor: at most one. It uses the payload until it has ended, so the
    end of the `with` statement cancels it (I14). A message that it shares with others has a copy of the payload, so
    that one is cancelled only when the change is given up or has failed."""

    __slots__ = ("_call", "_clock", "_is_shared", "_messages", "_peers", "_sent")

    def __init__(self, peers: PeerTargets, messages: SharedMessages, clock: Clock) -> None:
        self._peers = peers
        self._messages = messages
        self._clock = clock
        self._call: asyncio.Future[Any] | None = None
        self._is_shared = False
        self._sent = asyncio.Event()

    def __enter__(self) -> "AheadCall":
        return self

    def begin(
        self, target: Target, write: pb.ChunkWrite, version: int, stamp: int, payload: Buffer, deadline: float
    ) -> TargetId | None:
        """Send the change to the successor, if that one serves and there is room for it at once (P1). Returns the
        successor; None if nothing was sent."""
        assert self._call is None, "a change is sent ahead once"
        successor = target.successor if target.has_serving_successor else None
        if successor is None or write.kind == pb.REPLACE:
            return None
        change, hops = _change(target, successor, write, version, stamp), target.hops_behind
        self._call = self._messages.begin_ahead(successor.target_id, change, payload, hops, self._sent.set)
        if self._call is not None:
            self._is_shared = True
            return successor.target_id
        self._call = self._peers.begin_optional(
            self._peers.address_of(successor.target_id),
            STAGE_AHEAD,
            pb.StageAheadRequest(writes=[change]),
            feature=STAGE_AHEAD_FEATURE,
            timeout_s=_attempt_s(deadline - self._clock.monotonic(), payload, hops),
            payload=[payload] if len(payload) else [],
            hops=hops,
            sent=self._sent.set,
        )
        return successor.target_id if self._call is not None else None

    def when_failed(self, note: Callable[[], None]) -> None:
        """Have `note` called if the successor refuses the change, or it is lost. That may be after the end of the
        `with` statement."""
        if self._call is not None:
            self._call.add_done_callback(partial(_unless_taken, note))

    async def sent(self, target: Target) -> None:
        """Wait until the kernel has the whole message, or the call or the chain has ended. A forward that overtakes its
        payload finds nothing, and the payload is sent once more."""
        call, successor = self._call, target.successor
        if call is None or successor is None or self._sent.is_set() or call.done():
            return
        with contextlib.suppress(ThreefsError):
            await target.cancel_on_chain_change(self._peers.observe(successor.target_id, self._until_sent(call)))

    async def _until_sent(self, call: "asyncio.Future[Any]") -> None:
        sent: asyncio.Future[Any] = asyncio.ensure_future(self._sent.wait())
        try:
            await asyncio.wait((call, sent), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sent.cancel()
        if call.done():
            call.result()

    @property
    def has_failed(self) -> bool:
        """Whether the successor has refused the change, or was lost."""
        return self._call is not None and self._call.done() and self._call.exception() is not None

    async def answered(self) -> None:
        """Wait until nothing uses the payload any more. The result of the call is of no account."""
        if self._call is not None and not self._is_shared:
            with contextlib.suppress(ThreefsError):
                await self._call

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        call = self._call
        if self._is_shared and error is None:
            return
        if call is not None and not (call.cancel() or call.cancelled()):
            call.exception()  # retrieved: asyncio logs one that nobody asks for


def _unless_taken(note: Callable[[], None], call: "asyncio.Future[Any]") -> None:
    if not call.cancelled() and call.exception() is not None:
        note()


class Successor:
    """Calls to the next target of a chain. Each one ends with ChainChanged as soon as the chain changes."""

    def __init__(self, peers: PeerTargets, messages: SharedMessages, *, clock: Clock, pool: BufferPool) -> None:
        self._peers = peers
        self._messages = messages
        self._clock = clock
        self._pool = pool
        self._budgets = [ByteBudget(WHOLE_CHUNK_BYTES) for _ in range(MAX_HOPS + 1)]

    def ahead_call(self) -> AheadCall:
        """A call that sends one change ahead, not begun."""
        return AheadCall(self._peers, self._messages, self._clock)

    async def forward(
        self,
        target: Target,
        successor: ChainMember,
        chunk: ChunkId,
        pending: Version,
        write: pb.ChunkWrite | None,
        payload: Buffer,
        deadline: float,
        *,
        is_staged: bool = False,
    ) -> pb.ChunkWriteResult:
        """Forward the pending version, and return the result of the successor, which has committed it then.

        With `is_staged` the payload has gone ahead, and only the name of the version is sent (P3). Otherwise a serving
        successor gets the change `write` with its payload. A syncing one gets the whole chunk (R4), and so does a
        serving one if the change is not at hand. Raises NotStaged, what the successor refuses with, and errors of the
        call.
        """
        if is_staged:
            request = staged_version(successor.target_id, target.chain.version, chunk, pending)
            hops = target.hops_behind
            attempt_s = _attempt_s(deadline - self._clock.monotonic())
            call = self._messages.forward(successor.target_id, request, attempt_s, hops)
            try:
                return await target.cancel_on_chain_change(call)
            except NoSpace:
                raise self._full(successor) from None
        if write is not None and write.kind != pb.REPLACE and successor.state is PublicState.SERVING:
            message = _change(target, successor, write, pending.version, pending.stamp)
            message.whole_length, message.whole_checksum = pending.length, pending.checksum
            message.base_version = _base_version(target, chunk) if write.fresh else 0
            return await self._send(target, successor, message, payload, deadline)
        record = target.engine.record(chunk)
        assert record is not None and record.pending is not None, "a version is pending until the successor has it"
        fresh = record.committed is None or record.committed.removed
        base_version = _base_version(target, chunk) if fresh else 0
        whole = WholeChunk(chunk, pending, *record.next_entries, fresh=fresh, base_version=base_version)
        return await self.send_whole_chunk(target, successor, whole, deadline)

    async def send_whole_chunk(
        self,
        target: Target,
        successor: ChainMember,
        whole: WholeChunk,
        deadline: float,
        traffic: TrafficClass = TrafficClass.REPLICATION,
    ) -> pb.ChunkWriteResult:
        """Let the whole chunk replace what the successor has. Raises as `forward` does, and CorruptChunk."""
        message = whole.message(successor.target_id, target.chain.version)
        if whole.version.lost:
            return await self._send(target, successor, message, b"", deadline, traffic)
        length = whole.version.length
        budget = self._budgets[min(target.hops_behind, MAX_HOPS)]
        await self._reserve(budget, target, length, deadline)
        try:
            buffer = self._pool.take(length)
            try:
                content = buffer[:length]
                await _read(target, whole.version, content)
                return await self._send(target, successor, message, content, deadline, traffic)
            finally:
                self._pool.give(buffer)
        finally:
            budget.give(length)

    async def _reserve(self, budget: ByteBudget, target: Target, length: int, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                await target.cancel_on_chain_change(budget.take(length))
        except TimeoutError:
            raise DeadlineExceeded(
                f"{WHOLE_CHUNK_BYTES >> 20} MiB of other chunks were on their way to successors until the deadline"
            ) from None

    async def forget(self, target: Target, successor: ChainMember, chunk: ChunkId, deadline: float) -> None:
        """Let a syncing successor forget a chunk that has no record here."""
        message = pb.ChunkWrite(
            target=successor.target_id,
            chain_version=target.chain.version,
            chunk=chunk_id(chunk),
            kind=pb.FORGET,
        )
        await self._send(target, successor, message, b"", deadline, TrafficClass.BACKGROUND)

    async def collect_tombstone(
        self, target: Target, successor: ChainMember, chunk: ChunkId, version: int, deadline: float
    ) -> None:
        """Let the successor, and all targets behind it, forget a removed chunk."""
        message = pb.ChunkWrite(
            target=successor.target_id,
            chain_version=target.chain.version,
            chunk=chunk_id(chunk),
            kind=pb.COLLECT,
            version=version,
            stamp=target.logical_time.now,
        )
        await self._send(target, successor, message, b"", deadline, TrafficClass.BACKGROUND)

    async def _send(
        self,
        target: Target,
        successor: ChainMember,
        message: pb.ChunkWrite,
        payload: Buffer,
        deadline: float,
        traffic: TrafficClass = TrafficClass.REPLICATION,
    ) -> pb.ChunkWriteResult:
        call = self._peers.call(
            successor.target_id,
            WRITE,
            pb.WriteRequest(writes=[message]),
            timeout_s=_attempt_s(deadline - self._clock.monotonic(), payload, target.hops_behind),
            payload=[payload] if len(payload) else [],
            hops=target.hops_behind,
            traffic=traffic,
        )
        reply = await target.cancel_on_chain_change(call)
        result = reply.results[0]
        if not result.code:
            return result
        error = error_of(result.code, result.message)
        raise self._full(successor) if isinstance(error, NoSpace) else error

    def _full(self, successor: ChainMember) -> Unavailable:
        """The error of a successor without room: it leaves the chain, or finds room."""
        return Unavailable(f"the disk of {self._peers.shown(successor.target_id)} is full")


def _attempt_s(left_s: float, payload: Buffer = b"", hops: int = 0) -> float:
    return max(0.001, min(_ATTEMPT_S + transfer_s(len(payload), hops), left_s))


def _change(target: Target, successor: ChainMember, write: pb.ChunkWrite, version: int, stamp: int) -> pb.ChunkWrite:
    """The change as a message to the successor, in the version of the chain in which that target is the successor."""
    message = pb.ChunkWrite()
    message.CopyFrom(write)
    message.target = successor.target_id
    message.chain_version = target.chain.version
    message.version = version
    message.stamp = stamp
    return message


def _base_version(target: Target, chunk: ChunkId) -> int:
    """The version of the tombstone that the pending version comes after; 0 if the chunk had no record."""
    record = target.engine.record(chunk)
    return record.committed.version if record is not None and record.committed is not None else 0


async def _read(target: Target, version: Version, content: memoryview) -> None:
    if version.length and target.engine.read(version, 0, content) is None:
        try:
            await target.engine.read_cold(version, 0, content)
        except DiskFailed as error:  # one place cannot be read: other members may have the bytes
            raise CorruptChunk(error.message) from error
