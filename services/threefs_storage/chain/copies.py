"""Copies of a chunk at the other members of its chain, for a target whose own copy is damaged.

Only a serving member can say which version is committed. The bytes of a known version may come from a member in any
state: length and checksum show whether they are the right ones. Those of an older version serve for salvage.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

from threefs.env.buffers import BufferPool
from threefs.errors import ChainChanged, Corrupt, CorruptChunk, DiskFailed, ThreefsError, Unavailable, VersionGap
from threefs.ids import ChunkId, TargetId
from threefs.routing import PublicState
from threefs.rpc.methods import FETCH_CHUNK
from threefs.rpc.server_connection import Call
from threefs.transfer_time import transfer_s
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chain.write_messages import WholeChunk
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.exactly_once import NOTHING_FORGOTTEN
from threefs_storage.peer_targets import PeerTargets
from threefs_storage.target import Target

_ASK_S = 2.0
_FETCH_S = 10.0  # and the time of the bytes


class Copies:
    """Fetches chunks from the other members of a chain, and serves them to others."""

    def __init__(self, peers: PeerTargets, *, pool: BufferPool) -> None:
        self._peers = peers
        self._pool = pool

    async def record(self, target: Target, member: TargetId, chunk: ChunkId, *, newest: bool) -> pb.ChunkWrite | None:
        """The committed version at a serving member, without its content; with `newest` its pending version, if it has
        one. None if it has no record. Raises Corrupt if its record is damaged, VersionGap if a version is pending
        there that does not count."""
        request = self._request(target, member, chunk, newest=newest, record_only=True)
        reply, _ = await self._call(target, member, request, _ASK_S)
        return reply.chunk if reply.found else None

    async def content(self, target: Target, chunk: ChunkId, version: Version) -> bytearray | None:
        """The bytes of exactly this version from any member; None if no member that answers has them. Raises
        Unavailable if a serving member did not answer, ChainChanged if that may be why another one did not."""
        if not version.length:
            return bytearray()
        chain = target.chain
        others = [m for m in chain.members if m.target_id != target.target_id]
        async with asyncio.TaskGroup() as group:  # `_has` raises nothing
            asked = [group.create_task(self._has(target, m.target_id, chunk, version)) for m in others]
        if target.chain is not chain:  # the questions were cancelled
            raise ChainChanged(f"chain {chain.chain_id} has changed to version {target.chain.version}")
        answers = {member: has.result() for member, has in zip(others, asked, strict=True)}
        for member in [member for member, has in answers.items() if has]:
            try:
                reply, content = await self._fetch(target, member.target_id, chunk, version)
            except (Corrupt, CorruptChunk, DiskFailed):
                continue
            except ChainChanged:
                raise
            except ThreefsError:  # its disk may stand still: that counts as no answer
                answers[member] = None
                continue
            if reply.found and len(content) == version.length:
                return content
        silent = [m.target_id for m, has in answers.items() if has is None and m.state is PublicState.SERVING]
        if silent:
            raise Unavailable(f"targets {silent} serve, may have chunk {chunk}, and did not answer: try again")
        return None

    async def other_versions(self, target: Target, chunk: ChunkId) -> AsyncIterator[bytearray]:
        """The committed content of the chunk at each other member that answers, of whatever version. Raises
        ChainChanged."""
        for member in target.chain.members:
            if member.target_id == target.target_id:
                continue
            request = self._request(target, member.target_id, chunk, record_only=True, any_state=True)
            try:
                reply, _ = await self._call(target, member.target_id, request, _ASK_S)
                if not reply.found or reply.chunk.lost or not reply.chunk.length:
                    continue
                found = reply.chunk
                version = Version(found.version, 0, found.length, found.checksum, None, 0, b"")
                reply, content = await self._fetch(target, member.target_id, chunk, version)
            except ChainChanged:
                raise
            except ThreefsError:
                continue
            if reply.found:
                yield content

    async def _has(self, target: Target, member: TargetId, chunk: ChunkId, version: Version) -> bool | None:
        """Whether that member has the version undamaged; None if it does not answer."""
        request = self._request(target, member, chunk, version, record_only=True)
        try:
            reply, _ = await self._call(target, member, request, _ASK_S)
        except Corrupt:
            return False
        except ThreefsError:
            return None
        return reply.found

    async def _fetch(
        self, target: Target, member: TargetId, chunk: ChunkId, version: Version
    ) -> tuple[pb.FetchChunkReply, bytearray]:
        request = self._request(target, member, chunk, version)
        return await self._call(target, member, request, _FETCH_S + transfer_s(version.length))

    def _request(
        self, target: Target, member: TargetId, chunk: ChunkId, version: Version | None = None, **more: bool
    ) -> pb.FetchChunkRequest:
        request = pb.FetchChunkRequest(
            target=member, chain_version=target.chain.version, inode=chunk.inode, index=chunk.number, **more
        )
        if version is not None:
            request.version, request.length, request.checksum = version.version, version.length, version.checksum
        return request

    async def _call(
        self, target: Target, member: TargetId, request: pb.FetchChunkRequest, timeout_s: float
    ) -> tuple[pb.FetchChunkReply, bytearray]:
        content = bytearray()

        def sink(_: pb.FetchChunkReply, length: int) -> list[memoryview]:
            content.extend(bytes(length))
            return [memoryview(content)]

        call = self._peers.call(member, FETCH_CHUNK, request, timeout_s=timeout_s, sink=sink)
        return await target.cancel_on_chain_change(call), content

    # ---- for other members

    async def serve(self, call: Call[pb.FetchChunkRequest, pb.FetchChunkReply], target: Target) -> None:
        """Answer another member. Raises what a read would raise."""
        request = call.request
        if not request.version and not request.any_state:
            admission.check(target, request.chain_version)
        chunk = ChunkId(request.inode, request.index)
        try:
            record = target.engine.record(chunk)
        except Corrupt:
            target.note_damage(chunk)
            raise
        record = record or Record()
        if chunk in target.early and not request.version:  # it counts for nothing (P10)
            record = dataclasses.replace(record, pending=None)
        whole = _requested(record, chunk, request)
        if whole is None:
            call.reply(pb.FetchChunkReply())
            return
        version, message = whole.version, whole.message(0, request.chain_version)
        if request.record_only or not version.length:
            call.reply(pb.FetchChunkReply(found=True, chunk=message))
            return
        call.make_room(version.length, hops=0)
        buffer = self._pool.take(version.length)
        content = buffer[: version.length]
        try:
            await target.engine.read_cold(version, 0, content)
        except BaseException as error:
            self._pool.give(buffer)
            if isinstance(error, CorruptChunk | DiskFailed):
                target.note_damage(chunk)
            raise
        call.reply(pb.FetchChunkReply(found=True, chunk=message), [content], lambda: self._pool.give(buffer))


def _requested(record: Record, chunk: ChunkId, request: pb.FetchChunkRequest) -> WholeChunk | None:
    """The requested version: one with that number, length and checksum, or the newest that the request allows."""
    if request.version:
        wanted = (request.version, request.length, request.checksum, False)
        versions = (v for v in (record.committed, record.pending) if v is not None and not v.lost)
        found = next((v for v in versions if v.content == wanted), None)
        return None if found is None else WholeChunk(chunk, found, (), NOTHING_FORGOTTEN)
    if record.pending is None or request.any_state:
        if record.committed is None:
            return None
        return WholeChunk(chunk, record.committed, record.entries, record.forgotten)
    if not request.newest:
        raise VersionGap(f"version {record.pending.version} of chunk {chunk} is still pending")
    return WholeChunk(chunk, record.pending, *record.next_entries)
