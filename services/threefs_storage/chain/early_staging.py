"""Staging of early versions: the change comes ahead of its forward, so that the replicas persist it at the same time.

The predecessor sends a change while its own copy is on the way to the disk (`stage`). The forward that follows when the
copy is durable names the version only (`take_forward`).
"""

from functools import partial

from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.errors import Corrupt, CorruptChunk, NotStaged, Unavailable
from threefs.ids import ChunkId
from threefs.telemetry.event_trace import EventTrace
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chain.agreement import check_follows, check_made
from threefs_storage.chain.changes import report_damage, update_of
from threefs_storage.chain.craq import Craq, WriteResult
from threefs_storage.chain.early_versions import Change, EarlyVersion
from threefs_storage.chain.successor import Successor
from threefs_storage.chain.write_messages import change_of, is_named_by
from threefs_storage.engine.chunk_record import Record
from threefs_storage.target import Target

_NO_RECORD = Record()


class EarlyStaging:
    """Early versions at the targets of this process."""

    def __init__(self, craq: Craq, successor: Successor, trace: EventTrace, *, clock: Clock) -> None:
        self._craq = craq
        self._successor = successor
        self._trace = trace
        self._clock = clock

    async def stage(self, target: Target, write: pb.ChunkWrite, payload: Buffer, deadline: float) -> None:
        """Stage a change of the predecessor as an early version, and send it on (P1, P2). Nothing happens if another
        version is pending that is not early. Ends when nothing uses the payload any more.

        Raises ChainChanged, NotServing, VersionGap, StaleFence, DeadlineExceeded, Unavailable and what staging raises:
        nothing depends on it.
        """
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        change = change_of(write)
        admission.check_ahead(target, write)
        with self._successor.ahead_call() as ahead:
            async with self._craq.locked_change(target, chunk, deadline):
                admission.check_ahead(target, write)
                admission.check_fence(target, write)  # its version may be that of a write which the head has refused
                try:
                    if not self._takes_early(target, chunk, write, change):
                        return
                    passed_to = ahead.begin(target, write, write.version, write.stamp, payload, deadline)
                    if passed_to is None and target.has_serving_successor:
                        raise Unavailable(
                            f"target {target.target_id} cannot send the change on: send it with the forward"
                        )
                    assert target.serving and not target.is_head, (
                        "only a serving target that is not the head has early versions (P7, P8)"
                    )
                    target.early.mark(chunk, EarlyVersion(change, self._clock.monotonic(), passed_to))
                    ahead.when_failed(partial(target.early.note_not_passed, chunk, change))
                    try:
                        update = update_of(target, chunk, write, write.version, change.identity)
                        await self._craq.persist(target, chunk, update, payload)
                    finally:
                        if chunk not in target.engine.pending_chunks:
                            target.early.discard(chunk)
                    self._trace.add(chunk, "early", version=write.version, chain_version=write.chain_version)
                    await ahead.sent(target)
                except (Corrupt, CorruptChunk) as error:
                    raise report_damage(target, chunk, error) from error
            await ahead.answered()

    def _takes_early(self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, change: Change) -> bool:
        """Whether this change may be staged as an early version. Another early one gives way to it (P2)."""
        record = target.engine.record(chunk) or _NO_RECORD
        if record.committed is not None and write.version <= record.committed.version:
            return False
        check_follows(chunk, record.committed, write)
        if record.pending is not None and (chunk not in target.early or target.early.is_made_by(chunk, change)):
            return False
        target.drop_early(chunk)
        return True

    async def take_forward(self, target: Target, request: pb.ForwardStagedRequest, deadline: float) -> WriteResult:
        """Take a version that the predecessor forwards without its payload, because it has gone ahead (P5).

        Raises NotStaged if the version is not here, or the successor needs the bytes, and what a write of a predecessor
        raises.
        """
        chunk = ChunkId(request.chunk.inode, request.chunk.index)
        admission.check(target, request.chain_version)
        async with self._craq.locked_change(target, chunk, deadline):
            admission.check(target, request.chain_version)  # R3
            target.logical_time.observe(request.stamp)
            try:
                result = await self._craq.finish_full(target, chunk, request.version, request.chain_version, deadline)
                if result is not None:
                    return result
                pending = (target.engine.record(chunk) or _NO_RECORD).pending
                if pending is None or not is_named_by(pending, request):
                    raise NotStaged(f"version {request.version} of chunk {chunk} is not staged at {target.target_id}")
                if self._needs_bytes(target, chunk):
                    raise NotStaged(f"version {request.version} of chunk {chunk} has not come to the next target")
                check_made(target, chunk, pending, request.length, request.checksum)
                return await self._craq.promote(target, chunk, pending, deadline)
            except (Corrupt, CorruptChunk) as error:
                raise report_damage(target, chunk, error) from error

    def _needs_bytes(self, target: Target, chunk: ChunkId) -> bool:
        """Whether the successor lacks the early version, so that without its bytes the whole chunk would have to be
        sent. Only the head has the bytes of a change at hand when it has sent them ahead."""
        successor = target.successor
        return (
            successor is not None
            and target.has_serving_successor
            and target.is_behind_head
            and not target.early.was_passed_to(chunk, successor.target_id)
        )

    async def drop(self, target: Target, chunk: ChunkId, since: float, deadline: float) -> None:
        """Drop an early version that no predecessor has forwarded since then: its write has failed, or it has gone
        another way (P10). Raises DeadlineExceeded."""
        async with self._craq.locked_change(target, chunk, deadline):
            if chunk in target.early.older_than(since):
                target.drop_early(chunk)
