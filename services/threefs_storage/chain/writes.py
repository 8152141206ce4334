"""The methods that change chunks: writes of clients and predecessors, and versions that come ahead and are named later.

A message may hold many changes. Each has its own result, and all of them end before the payload's buffer is given back,
also when the call is cancelled or answered (I14).
"""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import structlog

from threefs.cluster.routing_watcher import RoutingWatcher
from threefs.env.net import Buffer
from threefs.errors import (
    DiskFailed,
    InProgress,
    Internal,
    InvalidArgument,
    LimitExceeded,
    NoSpace,
    NotServing,
    Overloaded,
    ResultForgotten,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
)
from threefs.rpc.methods import FORWARD_STAGED, FORWARD_VERSIONS, STAGE_AHEAD, WRITE
from threefs.rpc.send_window import MAX_HOPS
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.craq import Craq, WriteResult
from threefs_storage.chain.early_staging import EarlyStaging
from threefs_storage.chain.shared_messages import SharedMessages
from threefs_storage.engine.exactly_once import MAX_ENTRIES
from threefs_storage.engine.failures import is_exhaustion
from threefs_storage.health.peer_room import PeerRoom, PeerRoomQuery, refusal, too_few
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work
from threefs_storage.target import Target
from threefs_storage.targets import Targets

_MAX_WRITES = 1024
_WITH_PAYLOAD = (pb.WRITE, pb.REPLACE, pb.WRITE_PIECES)
#: Changes of messages with several, of all peers. As of memory, a quarter is for those that services forward: if these
#: had to wait for the end of clients' changes, services that forward to each other would wait for each other.
_MAX_IN_FLIGHT = 32_768
_REFRESH_S = 0.5
_IN_PROGRESS = pb.ChunkWriteResult(code=InProgress.code, message="the write goes on")
_LOG = structlog.get_logger()

_Row = Coroutine[Any, Any, pb.ChunkWriteResult]
_Answer = Callable[[list[pb.ChunkWriteResult]], None]


class Writes:
    """Answers Write, StageAhead, ForwardStaged and ForwardVersions."""

    def __init__(
        self,
        targets: Targets,
        cluster: RoutingWatcher,
        craq: Craq,
        early_staging: EarlyStaging,
        messages: SharedMessages,
        scheduler: BackgroundScheduler,
        room: PeerRoomQuery,
        target_recovery: TargetRecovery,
    ) -> None:
        self._targets = targets
        self._cluster = cluster
        self._craq = craq
        self._early_staging = early_staging
        self._messages = messages
        self._scheduler = scheduler
        self._room = room
        self._target_recovery = target_recovery
        self._in_flight = 0

    def start(self, server: Server) -> None:
        server.add(WRITE, self._write)
        server.add(STAGE_AHEAD, self._stage_ahead)
        server.add(FORWARD_STAGED, self._forward_staged)
        server.add(FORWARD_VERSIONS, self._forward_versions)

    async def _write(self, call: Call[pb.WriteRequest, pb.WriteReply]) -> None:
        writes, after_ms = call.request.writes, call.request.answer_after_ms
        parts = split_payload(writes, call.payload)

        def answer(results: list[pb.ChunkWriteResult]) -> None:
            call.reply(pb.WriteReply(results=results, routing_version=self._cluster.routing.version))

        rows = (self._write_one(call, write, part) for write, part in zip(writes, parts, strict=True))
        if call.traffic is TrafficClass.BACKGROUND:
            async with self._scheduler.turn(Work.FOR_PEERS, len(call.payload), call.remaining_s() / 2):
                await self._run(call, len(writes), rows, after_ms, answer)
        elif len(writes) == 1 and not after_ms:
            answer([await next(rows)])
        else:
            await self._run(call, len(writes), rows, after_ms, answer)

    async def _run(
        self, call: Call[Any, Any], count: int, rows: Iterable[_Row], after_ms: int, answer: _Answer
    ) -> None:
        """Run the rows, and answer when all have ended, or earlier without those that are slow. Rows of one message do
        not begin before those of another one that came before it."""
        most = _most_in_flight(call.hops)
        if self._in_flight + count > most:
            raise Overloaded(
                f"{self._in_flight} writes of batches are in flight, {count} more exceed {most}: try again"
            )
        self._in_flight += count
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(row) for row in rows]
                if count > 1:
                    self._messages.expect_several()
                if tasks and after_ms:
                    _, slow = await asyncio.wait(tasks, timeout=after_ms / 1000)
                    if slow:
                        answer([_IN_PROGRESS if task in slow else task.result() for task in tasks])
        finally:
            self._in_flight -= count
        assert len(tasks) == count and all(task.done() for task in tasks), "the payload is in use by no row (I14)"
        if not call.answered:
            answer([task.result() for task in tasks])

    async def _write_one(self, call: Call[Any, Any], write: pb.ChunkWrite, payload: Buffer) -> pb.ChunkWriteResult:
        try:
            target = self._targets.get(write.target)
        except NotServing as error:
            return _failed(error)
        try:
            await self._catch_up(target, write.chain_version)
            return _done(await self._craq.write(target, write, payload, call.deadline))
        except ThreefsError as error:
            self._note_full(write, error)
            error = self._without_files(target, error)
            if isinstance(error, NoSpace):
                error = await self._no_space(target, write, error)
            if isinstance(error, TooFewReplicas):
                error = too_few(target, await self._room.absences(target, write.chunk_bytes))
            return _failed(error)
        except Exception as error:
            return _broke("a write", error)

    async def _stage_ahead(self, call: Call[pb.StageAheadRequest, pb.StageAheadReply]) -> None:
        writes = call.request.writes
        parts = split_payload(writes, call.payload)
        if len(writes) == 1:
            await self._stage_one(call, writes[0], parts[0])
            call.reply(pb.StageAheadReply(results=[pb.ChunkWriteResult()]))
            return
        rows = (self._stage_row(call, write, part) for write, part in zip(writes, parts, strict=True))
        await self._run(call, len(writes), rows, 0, lambda results: call.reply(pb.StageAheadReply(results=results)))

    async def _stage_row(self, call: Call[Any, Any], write: pb.ChunkWrite, payload: Buffer) -> pb.ChunkWriteResult:
        try:
            await self._stage_one(call, write, payload)
        except ThreefsError as error:
            return _failed(error)
        except Exception as error:
            return _broke("staging a change ahead", error)
        return pb.ChunkWriteResult()

    async def _stage_one(self, call: Call[Any, Any], write: pb.ChunkWrite, payload: Buffer) -> None:
        try:
            await self._early_staging.stage(self._targets.get(write.target), write, payload, call.deadline)
        except ThreefsError as error:
            self._note_full(write, error)
            raise

    async def _forward_staged(self, call: Call[pb.ForwardStagedRequest, pb.ChunkWriteResult]) -> None:
        call.reply(await self._take_forward(call, call.request))

    async def _forward_versions(self, call: Call[pb.ForwardVersionsRequest, pb.ForwardVersionsReply]) -> None:
        versions = call.request.versions
        if len(versions) > _MAX_WRITES:
            raise LimitExceeded(f"{len(versions)} versions in one request; {_MAX_WRITES} are the most")
        rows = (self._forward_row(call, version) for version in versions)

        def answer(results: list[pb.ChunkWriteResult]) -> None:
            call.reply(pb.ForwardVersionsReply(results=results))

        await self._run(call, len(versions), rows, call.request.answer_after_ms, answer)

    async def _forward_row(self, call: Call[Any, Any], version: pb.ForwardStagedRequest) -> pb.ChunkWriteResult:
        try:
            return await self._take_forward(call, version)
        except ThreefsError as error:
            return _failed(error)
        except Exception as error:
            return _broke("a forward", error)

    async def _take_forward(self, call: Call[Any, Any], version: pb.ForwardStagedRequest) -> pb.ChunkWriteResult:
        target = self._targets.get(version.target)
        await self._catch_up(target, version.chain_version)
        try:
            return _done(await self._early_staging.take_forward(target, version, call.deadline))
        except ThreefsError as error:
            self._note_full(version, error)
            raise

    async def _catch_up(self, target: Target, chain_version: int) -> None:
        """Wait a little for the routing if the caller knows a newer version of the chain."""
        if chain_version > target.chain.version:
            await self._cluster.refresh(self._cluster.routing.version, _REFRESH_S)

    def _note_full(self, write: pb.ChunkWrite | pb.ForwardStagedRequest, error: ThreefsError) -> None:
        """A target without room, descriptors or memory for the write of a predecessor leaves its chain, so that the
        others can go on."""
        target = self._targets.by_id.get(write.target)
        if target is None or target.leaving:
            return
        if target.engine.failure is not None or (write.version and isinstance(error, NoSpace)):
            self._target_recovery.on_no_space(target)
        elif write.version and is_exhaustion(error):
            self._target_recovery.on_exhausted(target)

    def _without_files(self, target: Target, error: ThreefsError) -> ThreefsError:
        """A client reads this, and these errors name a file of this machine."""
        shown = self._cluster.routing.shown_target(target.target_id)
        if isinstance(error, DiskFailed):
            return DiskFailed(f"the disk of {shown} failed; `threefs status` says how")
        if is_exhaustion(error):
            return Unavailable(f"the process of {shown} has no descriptors or no memory left")
        return error

    async def _no_space(self, target: Target, write: pb.ChunkWrite, error: NoSpace) -> ThreefsError:
        """The error for a write that found no room. A full head gives way to a replica that has room."""
        if write.version and not target.leaving:
            return error  # the predecessor waits until this target has left the chain
        found = PeerRoom.TAKES_OVER if target.leaving else await self._room.ask(target, write.chunk_bytes)
        if found is PeerRoom.TAKES_OVER:
            self._target_recovery.on_no_space(target)
        return refusal(target, found, self._room.nodes(target))


def _most_in_flight(hops: int | None) -> int:
    """How many changes may be in flight when one of a call with so many hops begins. Those with fewer hops end first,
    and find room when there is none for the others (see `Server.make_room`)."""
    part = 4 if hops is None else min(hops, MAX_HOPS)
    return _MAX_IN_FLIGHT - _MAX_IN_FLIGHT * part // 16


def _done(result: WriteResult) -> pb.ChunkWriteResult:
    return pb.ChunkWriteResult(version=result.version, length=result.length, checksum=result.checksum)


def _failed(error: ThreefsError) -> pb.ChunkWriteResult:
    version = error.version if isinstance(error, ResultForgotten) else 0
    return pb.ChunkWriteResult(code=error.code, message=error.message, version=version)


def _broke(what: str, error: Exception) -> pb.ChunkWriteResult:
    _LOG.error(f"{what} failed unexpectedly", error="".join(traceback.format_exception(error)))
    return pb.ChunkWriteResult(code=Internal.code, message=f"{what} failed: {type(error).__name__}")


def split_payload(writes: Sequence[pb.ChunkWrite], payload: memoryview) -> list[memoryview]:
    """Each write's share of the payload. Raises InvalidArgument, LimitExceeded."""
    if len(writes) > _MAX_WRITES:
        raise LimitExceeded(f"{len(writes)} writes in one request; {_MAX_WRITES} are the most")
    parts, place = [], 0
    for write in writes:
        if len(write.entries) > MAX_ENTRIES:
            raise InvalidArgument(f"a write with {len(write.entries)} results; {MAX_ENTRIES} are the most")
        size = write.length if write.kind in _WITH_PAYLOAD and not write.lost else 0
        parts.append(payload[place : place + size])
        place += size
    if place != len(payload):
        raise InvalidArgument(f"the writes announce {place} bytes of payload, and {len(payload)} came")
    return parts
