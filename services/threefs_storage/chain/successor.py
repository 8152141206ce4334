"""Sending a pending version to the next target of the chain."""

import asyncio
from collections.abc import Callable, Sequence

from threefs.budget import ByteBudget
from threefs.env.buffers import BufferPool
from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import CorruptChunk, DeadlineExceeded, DiskFailed, NoSpace, Unavailable, error_of
from threefs.ids import ChunkId
from threefs.routing import ChainMember, PublicState, Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import WRITE
from threefs.rpc.window import MOST_BEHIND
from threefs.wire import common_pb2
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.exactly_once import Entry, Forgotten
from threefs_storage.engine.records import Version
from threefs_storage.targets import Target

_ATTEMPT_S = 5.0
#: Whole chunks that are on their way to successors at a time, in bytes, by how many more targets they pass: what has
#: come to its last target needs no room of those before it, so nobody waits in a circle (see `Window`).
SHIPPED_BYTES = 64 << 20


class Successor:
    """Calls to whatever target follows in the chain."""

    def __init__(
        self, peers: ConnectionPool, routing: Callable[[], Routing], *, clock: Clock, pool: BufferPool
    ) -> None:
        self._peers = peers
        self._routing = routing
        self._clock = clock
        self._pool = pool
        self._budgets = [ByteBudget(SHIPPED_BYTES) for _ in range(MOST_BEHIND + 1)]

    async def forward(
        self,
        target: Target,
        successor: ChainMember,
        chunk: ChunkId,
        pending: Version,
        write: pb.ChunkWrite | None,
        payload: Buffer,
        deadline: float,
    ) -> pb.ChunkWriteResult:
        """The successor's result: it has committed this version. Raises what it refused with, or why it did not
        answer; ChainChanged as soon as the chain changes.

        A syncing successor gets the whole chunk (R4), and so does one for whom the change itself is not at hand.
        """
        chain_version = target.chain.version  # the one in which that is the successor
        if write is not None and write.kind != pb.REPLACE and successor.state is PublicState.SERVING:
            message = pb.ChunkWrite()
            message.CopyFrom(write)
            message.target = successor.target_id
            message.chain_version = chain_version
            message.version = pending.version
            message.stamp = pending.stamp
            return await self._send(target, successor, message, payload, deadline)
        record = target.engine.record(chunk)
        assert record is not None and record.pending is not None
        return await self.send_whole_chunk(target, successor, chunk, pending, *record.next_entries, deadline)

    async def send_whole_chunk(
        self,
        target: Target,
        successor: ChainMember,
        chunk: ChunkId,
        version: Version,
        entries: Sequence[Entry],
        forgotten: Forgotten,
        deadline: float,
    ) -> pb.ChunkWriteResult:
        """Send a whole chunk, with the exactly-once entries that go with it (R6)."""
        chain_version = target.chain.version
        if version.lost:
            message = whole(successor.target_id, chain_version, chunk, version, entries, forgotten)
            return await self._send(target, successor, message, b"", deadline)
        room = self._budgets[min(target.chain.behind(successor.target_id), MOST_BEHIND)]
        await self._reserve(room, target, version.length, deadline)
        try:
            return await self._send_content(
                target, successor, chunk, version, entries, forgotten, chain_version, deadline
            )
        finally:
            room.give(version.length)

    async def _reserve(self, room: ByteBudget, target: Target, size: int, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                await target.cancel_on_chain_change(room.take(size))
        except TimeoutError:
            raise DeadlineExceeded("other chunks on their way to successors took all the time") from None

    async def _send_content(
        self,
        target: Target,
        successor: ChainMember,
        chunk: ChunkId,
        version: Version,
        entries: Sequence[Entry],
        forgotten: Forgotten,
        chain_version: int,
        deadline: float,
    ) -> pb.ChunkWriteResult:
        buffer = self._pool.take(version.length)
        try:
            content = buffer[: version.length]
            await _read(target, version, content)
            message = whole(successor.target_id, chain_version, chunk, version, entries, forgotten)
            return await self._send(target, successor, message, content, deadline)
        finally:
            self._pool.give(buffer)

    async def forget(self, target: Target, successor: ChainMember, chunk: ChunkId, deadline: float) -> None:
        """Let a syncing successor forget a chunk of which nothing is known here."""
        message = pb.ChunkWrite(
            target=successor.target_id,
            chain_version=target.chain.version,
            chunk=common_pb2.ChunkId(inode=chunk.inode, index=chunk.number),
            kind=pb.FORGET,
        )
        await self._send(target, successor, message, b"", deadline)

    async def collect_tombstone(
        self, target: Target, successor: ChainMember, chunk: ChunkId, version: int, deadline: float
    ) -> None:
        """Let the successor, and all behind it, forget a removed chunk."""
        message = pb.ChunkWrite(
            target=successor.target_id,
            chain_version=target.chain.version,
            chunk=common_pb2.ChunkId(inode=chunk.inode, index=chunk.number),
            kind=pb.COLLECT,
            version=version,
            stamp=target.logical_time.now,
        )
        await self._send(target, successor, message, b"", deadline)

    async def _send(
        self, target: Target, successor: ChainMember, message: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> pb.ChunkWriteResult:
        address = self._routing().address_of(successor.target_id)
        if not address:
            raise Unavailable(f"the storage process of target {successor.target_id} has not registered yet")
        left_s = max(0.001, min(_ATTEMPT_S, deadline - self._clock.monotonic()))
        pieces = [payload] if len(payload) else []
        call = self._peers.call(
            address,
            WRITE,
            pb.WriteRequest(writes=[message]),
            timeout_s=left_s,
            payload=pieces,
            behind=target.chain.behind(successor.target_id),
        )
        reply = await target.cancel_on_chain_change(call)
        result = reply.results[0]
        if not result.code:
            return result
        error = error_of(result.code, result.message)
        if isinstance(error, NoSpace):  # it will leave the chain, or find room
            raise Unavailable(f"the disk of target {successor.target_id} is full")
        raise error


async def _read(target: Target, version: Version, content: memoryview) -> None:
    if version.length and target.engine.read(version, 0, content) is None:
        try:
            await target.engine.read_cold(version, 0, content)
        except DiskFailed as error:  # of one place that cannot be read: other members may have the bytes
            raise CorruptChunk(error.message) from error


def whole(
    target_id: int,
    chain_version: int,
    chunk: ChunkId,
    version: Version,
    entries: Sequence[Entry],
    forgotten: Forgotten,
) -> pb.ChunkWrite:
    """A version as a message that puts it, and its results, in the place of whatever a target has."""
    identity = version.identity
    return pb.ChunkWrite(
        target=target_id,
        chain_version=chain_version,
        chunk=common_pb2.ChunkId(inode=chunk.inode, index=chunk.number),
        identity=_identity(*identity) if identity is not None else None,
        kind=pb.REPLACE,
        length=version.length,
        checksum=version.checksum,
        chunk_bytes=version.checksum_block_bytes << 8,
        version=version.version,
        removed=version.removed,
        lost=version.lost,
        stamp=version.stamp,
        forgotten_version=forgotten.version,
        forgotten_stamp=forgotten.stamp,
        entries=[
            pb.OnceEntry(
                identity=_identity(entry.client, entry.channel, entry.seq),
                version=entry.version,
                length=entry.length,
                checksum=entry.checksum,
                stamp=entry.stamp,
            )
            for entry in entries
        ],
    )


def _identity(client: bytes, channel: int, seq: int) -> common_pb2.WriteIdentity:
    return common_pb2.WriteIdentity(client=client, channel=channel, seq=seq)
