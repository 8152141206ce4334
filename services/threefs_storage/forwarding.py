"""Sending a pending version to the next target of the chain."""

from collections.abc import Callable

from threefs.env.buffers import BufferPool
from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import Unavailable, error_of
from threefs.ids import ChunkId
from threefs.routing import ChainMember, PublicState, Routing
from threefs.rpc.methods import WRITE
from threefs.rpc.peers import Peers
from threefs.wire import common_pb2
from threefs.wire import storage_pb2 as pb
from threefs_storage.engine.records import Version
from threefs_storage.targets import Target

_ATTEMPT_S = 5.0


class Successor:
    """Calls to whatever target follows in the chain."""

    def __init__(self, peers: Peers, routing: Callable[[], Routing], *, clock: Clock, pool: BufferPool) -> None:
        self._peers = peers
        self._routing = routing
        self._clock = clock
        self._pool = pool

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
        answer.

        A syncing successor gets the whole chunk (R4), and so does one for whom the change itself is not at hand.
        """
        chain_version = target.chain.version  # the one in which that is the successor
        if write is not None and write.kind != pb.REPLACE and successor.state is PublicState.SERVING:
            message = pb.ChunkWrite()
            message.CopyFrom(write)
            message.target = successor.target_id
            message.chain_version = chain_version
            message.version = pending.version
            return await self._send(successor, message, payload, deadline)
        buffer = self._pool.take(pending.length)
        try:
            content = buffer[: pending.length]
            if pending.length and target.engine.read(pending, 0, content) is None:
                await target.engine.read_cold(pending, 0, content)
            message = _whole(target, successor, chain_version, chunk, pending)
            return await self._send(successor, message, content, deadline)
        finally:
            self._pool.give(buffer)

    async def _send(
        self, successor: ChainMember, message: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> pb.ChunkWriteResult:
        address = self._routing().address_of(successor.target_id)
        if not address:
            raise Unavailable(f"the storage process of target {successor.target_id} has not registered yet")
        left_s = max(0.001, min(_ATTEMPT_S, deadline - self._clock.monotonic()))
        pieces = [payload] if len(payload) else []
        reply = await self._peers.call(
            address, WRITE, pb.WriteRequest(writes=[message]), timeout_s=left_s, payload=pieces
        )
        result = reply.results[0]
        if result.code:
            raise error_of(result.code, result.message)
        return result


def _whole(
    target: Target, successor: ChainMember, chain_version: int, chunk: ChunkId, pending: Version
) -> pb.ChunkWrite:
    """The pending version as a replace, with the entries that go with it (R6)."""
    record = target.engine.record(chunk)
    assert record is not None and record.pending is not None
    identity = pending.identity
    return pb.ChunkWrite(
        target=successor.target_id,
        chain_version=chain_version,
        chunk=common_pb2.ChunkId(inode=chunk.inode, index=chunk.number),
        identity=_identity(*identity) if identity is not None else None,
        kind=pb.REPLACE,
        length=pending.length,
        checksum=pending.checksum,
        chunk_bytes=pending.checksum_block_bytes << 8,
        version=pending.version,
        removed=pending.removed,
        entries=[
            pb.OnceEntry(
                identity=_identity(entry.client, entry.channel, entry.seq),
                version=entry.version,
                length=entry.length,
                checksum=entry.checksum,
            )
            for entry in (record.entries if record.shipped is None else record.shipped)
        ],
    )


def _identity(client: bytes, channel: int, seq: int) -> common_pb2.WriteIdentity:
    return common_pb2.WriteIdentity(client=client, channel=channel, seq=seq)
