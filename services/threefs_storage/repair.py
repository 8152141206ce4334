"""Damaged chunks are made good from another serving replica, while readers are served by the others (I12)."""

import asyncio
from collections.abc import Callable

import structlog

from threefs.env.buffers import BufferPool
from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import ChunkNotFound, Corrupt, CorruptChunk, DiskFailed, ThreefsError, Unavailable, VersionGap
from threefs.ids import ChunkId, WriteIdentity
from threefs.routing import Routing
from threefs.rpc.methods import FETCH_CHUNK
from threefs.rpc.peers import Peers
from threefs.rpc.session import Call
from threefs.wire import storage_pb2 as pb
from threefs_storage.craq import Craq, entries_of
from threefs_storage.engine.content import Kind, Update
from threefs_storage.forwarding import whole
from threefs_storage.targets import Target

_CALL_S = 5.0
_TURN_S = 20.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0

_LOG = structlog.get_logger()


class Repair:
    """One task per target; it sleeps while nothing is damaged."""

    def __init__(
        self, craq: Craq, peers: Peers, routing: Callable[[], Routing], *, clock: Clock, pool: BufferPool
    ) -> None:
        self._craq = craq
        self._peers = peers
        self._routing = routing
        self._clock = clock
        self._pool = pool
        self._tasks: list[asyncio.Task[None]] = []
        self._told: set[tuple[int, ChunkId]] = set()  # damage of which the log says that it cannot be repaired now

    def begin(self, target: Target) -> None:
        self._tasks.append(asyncio.create_task(self._run(target)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, target: Target) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            if not target.damaged:
                pause_s = _FIRST_PAUSE_S
                target.hurt.clear()
                await target.hurt.wait()
            for chunk in list(target.damaged):
                await self._repair(target, chunk)
            if target.damaged:
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _repair(self, target: Target, chunk: ChunkId) -> None:
        try:
            done = await self._craq.replace_damaged(target, chunk, self._fetch, self._clock.monotonic() + _TURN_S)
        except (ChunkNotFound, Corrupt, CorruptChunk, DiskFailed) as error:  # of the other replica
            if (target.target_id, chunk) not in self._told:
                self._told.add((target.target_id, chunk))
                _LOG.warning(
                    "a damaged chunk is not good elsewhere", target=target.target_id, chunk=chunk, error=str(error)
                )
        except ThreefsError as error:
            _LOG.debug("a damaged chunk cannot be repaired now", chunk=chunk, error=str(error))
        except Exception:
            _LOG.exception("a damaged chunk cannot be repaired", chunk=chunk)
        else:
            target.damaged.pop(chunk, None)
            self._told.discard((target.target_id, chunk))
            target.repaired += done
            _LOG.info("a damaged chunk is repaired", target=target.target_id, chunk=chunk, damaged=done)

    async def _fetch(self, target: Target, chunk: ChunkId, chain_version: int) -> tuple[Update, Buffer]:
        """The chunk as the neighbour in the chain has it.

        The successor has all that this target has committed. So has the tail's predecessor, and what it has pending is
        on its way here, but waits for this repair.
        """
        serving = target.chain.serving
        place = serving.index(target.target_id)
        if len(serving) == 1:
            raise Unavailable("no other replica serves")
        neighbour = serving[place - 1] if target.is_tail else serving[place + 1]
        address = self._routing().address_of(neighbour)
        content = bytearray()

        def sink(_: pb.FetchChunkReply, length: int) -> list[memoryview]:
            content.extend(bytes(length))
            return [memoryview(content)]

        request = pb.FetchChunkRequest(
            target=neighbour,
            chain_version=chain_version,
            inode=chunk.inode,
            index=chunk.number,
            newest=target.is_tail,
        )
        call = self._peers.call(address, FETCH_CHUNK, request, timeout_s=_CALL_S, sink=sink)
        reply = await target.unless_changed(call)
        if not reply.found:
            raise ChunkNotFound
        return _update(reply.chunk, chain_version), content

    async def serve(self, call: Call[pb.FetchChunkRequest, pb.FetchChunkReply], target: Target) -> None:
        """Answer with a whole chunk. Raises what a read would."""
        request = call.request
        target.check(request.chain_version)
        chunk = ChunkId(request.inode, request.index)
        try:
            record = target.engine.record(chunk)
        except Corrupt:
            target.note_damage(chunk)
            raise
        version = record.committed if record is not None else None
        entries = record.entries if record is not None else ()
        if record is not None and record.pending is not None:
            if not request.newest:
                raise VersionGap(f"version {record.pending.version} of chunk {chunk} is still pending")
            version = record.pending
            entries = record.entries if record.shipped is None else record.shipped
        if version is None:
            call.reply(pb.FetchChunkReply())
            return
        buffer = self._pool.take(version.length)
        try:
            content = buffer[: version.length]
            await target.engine.read_cold(version, 0, content)
        except BaseException as error:
            self._pool.give(buffer)
            if isinstance(error, CorruptChunk | DiskFailed):
                target.note_damage(chunk)
            raise
        message = whole(0, request.chain_version, chunk, version, entries)
        payload = [content] if version.length else []
        call.reply(pb.FetchChunkReply(found=True, chunk=message), payload, lambda: self._pool.give(buffer))


def _update(message: pb.ChunkWrite, chain_version: int) -> Update:
    identity = message.identity
    return Update(
        kind=Kind.REPLACE,
        version=message.version,
        chain_version=chain_version,
        length=message.length,
        checksum=message.checksum,
        chunk_bytes=message.chunk_bytes,
        identity=WriteIdentity(identity.client, identity.channel, identity.seq) if identity.client else None,
        removed=message.removed,
        entries=entries_of(message),
        admitted=True,
    )
