"""The write path of one target: chain replication with at most one pending version per chunk.

Each replica, under the lock of the chunk: finishes an older pending version, decides whether the write applies, makes
the new version durable as pending, forwards it to the successor, and commits it once the successor has. So all
successors have committed what a predecessor has committed (I3), and an acknowledged write is durable on all of them
(I2). Changes go ahead of their forwards, so that all replicas make them durable at the same time (early_staging.py).
docs/protocol.md explains the rules R1 to R12 and P1 to P13 that the comments name.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass

from threefs.backoff import Backoff
from threefs.env.clock import Clock
from threefs.env.net import Buffer
from threefs.env.random import Random
from threefs.errors import (
    ChainChanged,
    ChecksumMismatch,
    ChunkChanged,
    ChunkLost,
    Corrupt,
    CorruptChunk,
    DeadlineExceeded,
    InvalidArgument,
    NotStaged,
    OutcomeUnknown,
    ResultDropped,
    ResultForgotten,
    Retry,
    StaleWrite,
    ThreefsError,
    TooFewReplicas,
    VersionGap,
)
from threefs.ids import ChunkId, TargetId, WriteIdentity
from threefs.layout import FENCE_CHUNK
from threefs.routing import PublicState
from threefs.rpc.traffic_class import TrafficClass
from threefs.telemetry.event_trace import EventTrace
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission, pieces
from threefs_storage.chain.agreement import check_answer, check_base, check_change
from threefs_storage.chain.changes import (
    check_kept_bytes,
    has_ample_room,
    is_collectable,
    is_early_version_of,
    keeps_bytes,
    note_unforeseen,
    outcome_unknown,
    record_or_empty,
    replaces_nothing,
    report_damage,
    update_of,
)
from threefs_storage.chain.successor import Successor
from threefs_storage.chain.write_messages import WholeChunk, identity_of
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.content_plan import Update
from threefs_storage.engine.exactly_once import may_be_forgotten
from threefs_storage.target import Target

_BACKOFF = Backoff(0.02, 0.5)
_NO_RECORD = Record()
_REFUSED_EVERYWHERE = (InvalidArgument, ChecksumMismatch)  # what is wrong with a change itself


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A committed write."""

    version: int
    length: int
    checksum: int


class Craq:
    """Writes to the targets of this process."""

    def __init__(self, successor: Successor, trace: EventTrace, *, clock: Clock, random: Random) -> None:
        self._successor = successor
        self._trace = trace
        self._clock = clock
        self._random = random

    async def write(self, target: Target, write: pb.ChunkWrite, payload: Buffer, deadline: float) -> WriteResult:
        """Apply one write of a client (version 0) or of a predecessor.

        Raises ChainChanged, NotServing, VersionGap, StaleWrite, StaleFence, ChunkChanged, InvalidArgument,
        ChecksumMismatch, ChunkLost, ResultForgotten, NoSpace: it had no effect. Raises DeadlineExceeded,
        OutcomeUnknown: the version may be pending, and is committed later then. Raises ResultDropped: an earlier
        attempt may have been applied.
        """
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        if chunk.number == FENCE_CHUNK and not write.version:
            return await self._raise_fence(target, chunk, write, payload, deadline)
        return await self._write(target, chunk, write, payload, deadline)

    async def _raise_fence(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> WriteResult:
        """Raise the fence of an inode. Once it is staged, the head refuses writes with an older fence. Writes that were
        admitted before end before this returns, so no write under a lost lock shows after the next holder has the
        lock (I18). The other targets drop their early versions of the inode as the fence passes them (P13)."""
        result = await self._write(target, chunk, write, payload, deadline)
        admitted = {*target.locks, *target.engine.pending_chunks} - {chunk}
        for other in [each for each in admitted if each.inode == chunk.inode]:
            await self.finish_pending(target, other, deadline)
        return result

    async def _write(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> WriteResult:
        if write.kind == pb.FORGET:
            return await self._forget(target, chunk, write, deadline)
        if write.kind == pb.COLLECT:
            return await self._collect_at_successor(target, chunk, write, deadline)
        identity = identity_of(write)
        admission.check_write(target, write)
        async with self.locked_change(target, chunk, deadline):
            admission.check_write(target, write)  # R3: the chain may have changed while we waited
            try:
                if write.version:
                    return await self._from_predecessor(target, chunk, write, identity, payload, deadline)
                assert identity is not None, "a change of a client has an identity (I6)"
                return await self._from_client(target, chunk, write, identity, payload, deadline)
            except ChunkLost:
                raise
            except (Corrupt, CorruptChunk) as error:  # this write has had no effect yet
                raise report_damage(target, chunk, error) from error

    async def finish_pending(self, target: Target, chunk: ChunkId, deadline: float) -> None:
        """Commit the full pending version of a chunk if no call is forwarding it: it is of an older chain version, of
        an earlier process, or its change was cancelled.

        Raises NotServing, DeadlineExceeded and what the successor refuses with.
        """
        async with self.locked_change(target, chunk, deadline):
            admission.check(target, target.chain.version)
            try:
                record = target.engine.record(chunk)
                if record is None or record.pending is None or chunk in target.early:  # P4
                    return
                if chunk not in target.current_pending or chunk in target.abandoned:
                    await self.replicate(target, chunk, record.pending, deadline)
            except (Corrupt, CorruptChunk) as error:
                raise report_damage(target, chunk, error) from error

    async def send_chunk(self, target: Target, chunk: ChunkId, chain_version: int, deadline: float) -> None:
        """Make the chunk at the syncing successor equal to the one here, under its lock.

        Raises ChainChanged, NotServing, DeadlineExceeded, CorruptChunk, Corrupt, and what the successor refuses with.
        """
        async with self.locked_change(target, chunk, deadline):
            admission.check(target, chain_version)
            record = target.engine.record(chunk)
            if record is not None and record.pending is not None and chunk not in target.early:
                await self.replicate(target, chunk, record.pending, deadline)
                admission.check(target, chain_version)
                record = target.engine.record(chunk)
            successor = target.successor
            assert successor is not None and successor.state is PublicState.SYNCING, (
                "a syncing successor leaves only with a new chain version"
            )
            assert not target.has_full_pending(chunk), "the pending version was finished under this lock (R6)"
            committed = record.committed if record is not None else None
            if record is None or committed is None:
                await self._successor.forget(target, successor, chunk, deadline)
            else:
                whole = WholeChunk(chunk, committed, record.entries, record.forgotten)
                background = TrafficClass.BACKGROUND
                await self._successor.send_whole_chunk(target, successor, whole, deadline, background)
            self._trace.add(chunk, "shipped", version=committed.version if committed else 0, to=successor.target_id)

    def trace_repaired(self, target: Target, chunk: ChunkId) -> None:
        """Note the repair in the trace of the chunk."""
        committed = record_or_empty(target, chunk).committed
        self._trace.add(chunk, "repaired", version=committed.version if committed is not None else 0)

    async def collect_tombstone(self, target: Target, chunk: ChunkId, version: int, deadline: float) -> bool:
        """At the head: make all members forget a removed chunk whose tombstone is too old for a late write to come. The
        tail forgets it first: the head keeps the version, so that the next write gets a higher one, which all members
        take. False if the tombstone has to stay. Raises what the successor refuses with."""
        async with self.locked_change(target, chunk, deadline):
            admission.check(target, target.chain.version)
            admission.check_head(target)
            if not target.all_members_serve or not is_collectable(target, target.engine.record(chunk), version):
                return False
            await self._collect_tail_first(target, chunk, version, deadline)
            return True

    async def _collect_at_successor(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, deadline: float
    ) -> WriteResult:
        admission.check(target, write.chain_version)
        async with self.locked_change(target, chunk, deadline):
            admission.check(target, write.chain_version)
            target.logical_time.observe(write.stamp)
            try:
                record = target.engine.record(chunk)
            except Corrupt as error:
                raise report_damage(target, chunk, error) from error
            if record is not None:  # otherwise this target, and so all behind it, have forgotten the chunk
                if not target.all_members_serve or not is_collectable(target, record, write.version):
                    raise VersionGap(
                        f"chunk {chunk} is kept: version {write.version} is not an old tombstone at target "
                        f"{target.target_id}"
                    )
                await self._collect_tail_first(target, chunk, write.version, deadline)
            return WriteResult(0, 0, 0)

    async def _collect_tail_first(self, target: Target, chunk: ChunkId, version: int, deadline: float) -> None:
        chain_version = target.chain.version
        successor = target.successor
        if successor is not None:
            await self._successor.collect_tombstone(target, successor, chunk, version, deadline)
        admission.check(target, chain_version)
        assert is_collectable(target, target.engine.record(chunk), version), "a tombstone stays as it is under its lock"
        target.forget_removed(chunk)
        self._trace.add(chunk, "collected", version=version)

    async def _forget(self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, deadline: float) -> WriteResult:
        """At a syncing target: forget a chunk that the predecessor does not have. A version that came in this chain
        version is newer, and stays (R5)."""
        admission.check(target, write.chain_version, syncing=True)
        async with self.locked_change(target, chunk, deadline):
            admission.check(target, write.chain_version, syncing=True)
            if target.serving:
                raise VersionGap(f"target {target.target_id} serves: it forgets nothing")
            committed = record_or_empty(target, chunk).committed
            if committed is None or committed.chain_version != target.chain.version:
                target.engine.forget(chunk)
            return WriteResult(0, 0, 0)

    @contextlib.asynccontextmanager
    async def locked_change(self, target: Target, chunk: ChunkId, deadline: float) -> AsyncIterator[None]:
        """Hold the chunk's lock for a change. Raises DeadlineExceeded."""
        async with target.locks.hold(chunk, deadline - self._clock.monotonic()):
            target.begin_change(chunk)
            try:
                yield
            finally:
                target.end_change(chunk)

    async def _from_client(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        identity: WriteIdentity,
        payload: Buffer,
        deadline: float,
    ) -> WriteResult:
        assert chunk not in target.early, "at the head every pending version is full (P7)"
        record = target.engine.record(chunk) or _NO_RECORD
        if record.pending is not None:  # R6: its exactly-once entry is not yet a result
            await self.replicate(target, chunk, record.pending, deadline)
            admission.check_write(target, write)
            record = target.engine.record(chunk) or _NO_RECORD
            assert record.pending is None, "the pending version was finished under this lock (R6)"
        entry = record.entry(identity.client, identity.channel)
        if entry is not None and entry.seq >= (write.first_seq or identity.seq):
            if entry.seq > identity.seq:
                raise StaleWrite(f"write {identity.seq} of chunk {chunk} came after write {entry.seq} of its channel")
            return WriteResult(entry.version, entry.length, entry.checksum)
        committed = record.committed.version if record.committed is not None else 0
        if write.only_version and write.only_version != committed:
            raise ChunkChanged(f"chunk {chunk} has version {committed}, the change names version {write.only_version}")
        if record.committed is not None and keeps_bytes(record.committed, write):
            check_kept_bytes(target, chunk, record.committed)
        if entry is None and may_be_forgotten(record.forgotten, write.known_version, target.logical_time.now):
            if write.again or write.first_seq:  # before the fence, whose error says that it was never applied
                raise ResultDropped(f"the result of write {identity.seq} of chunk {chunk} may have been dropped")
            raise ResultForgotten(version=committed)
        async with pieces.PlainPayload(target, chunk, write, payload, deadline - self._clock.monotonic()) as plain:
            if plain is not payload:
                admission.check_write(target, write)
            admission.check_fence(target, write)
            version = committed + 1 if record.committed is not None else target.first_version
            assert version > committed, "versions only rise (I4)"
            result = await self._stage(target, chunk, write, version, identity, plain, deadline)
        try:  # targets that have left since the write was admitted do not have it
            admission.check_min_replicas(target, write)
        except TooFewReplicas as error:
            raise OutcomeUnknown(f"too few targets have the write for an acknowledgement: {error}") from None
        return result

    async def _from_predecessor(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        identity: WriteIdentity | None,
        payload: Buffer,
        deadline: float,
    ) -> WriteResult:
        if not target.serving:
            return await self._replace(target, chunk, write, identity, payload, deadline)
        result = await self.finish_full(target, chunk, write.version, write.chain_version, deadline)
        if result is not None:
            return result
        record = target.engine.record(chunk) or _NO_RECORD
        if record.pending is not None:
            if is_early_version_of(target, chunk, record.pending, write):
                check_change(target, chunk, record.pending, write)
                return await self.promote(target, chunk, record.pending, deadline, write, payload)
            target.drop_early(chunk)
        lacking = check_base(target, chunk, record.committed, write)
        if lacking is not None:
            return _result_of(lacking)
        return await self._stage(target, chunk, write, write.version, identity, payload, deadline)

    async def finish_full(
        self, target: Target, chunk: ChunkId, version: int, chain_version: int, deadline: float
    ) -> WriteResult | None:
        """Finish the full pending version. Returns the result of the version that a predecessor forwards, if it was
        taken before: this is a repeat then."""
        record = target.engine.record(chunk) or _NO_RECORD
        if record.pending is not None and chunk not in target.early:
            is_repeat = record.pending.version == version
            result = await self.replicate(target, chunk, record.pending, deadline)
            if is_repeat:
                return result
            admission.check(target, chain_version)
            record = target.engine.record(chunk) or _NO_RECORD
            assert record.pending is None, "the pending version was finished under this lock"
        committed = record.committed
        if committed is None or version > committed.version:
            return None
        return _result_of(committed)

    async def promote(
        self,
        target: Target,
        chunk: ChunkId,
        pending: Version,
        deadline: float,
        write: pb.ChunkWrite | None = None,
        payload: Buffer = b"",
    ) -> WriteResult:
        """All predecessors have the early version on their disks: it is full from now on, and is replicated (P5)."""
        early = target.early.take(chunk)
        target.current_pending.add(chunk)
        self._trace.add(chunk, "staged", version=pending.version, chain_version=target.chain.version)
        try:
            return await self.replicate(target, chunk, pending, deadline, write, payload, staged_at=early.passed_to)
        except ThreefsError as error:
            raise outcome_unknown(error) from error

    async def _replace(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        identity: WriteIdentity | None,
        payload: Buffer,
        deadline: float,
    ) -> WriteResult:
        """At a syncing target: the whole chunk replaces every version but a newer one of this chain version (R5)."""
        if write.kind != pb.REPLACE:
            raise VersionGap(f"target {target.target_id} is syncing: it takes only whole chunks")
        committed = record_or_empty(target, chunk).committed
        if committed is not None and replaces_nothing(committed, write):
            return _result_of(committed)
        return await self._stage(target, chunk, write, write.version, identity, payload, deadline)

    async def _stage(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        version: int,
        identity: WriteIdentity | None,
        payload: Buffer,
        deadline: float,
    ) -> WriteResult:
        """Make the version durable here, at the same time as at the successors, then replicate it (R11, P1)."""
        if self._clock.monotonic() >= deadline:
            raise DeadlineExceeded("the deadline of the write passed before the target could begin it")
        chain_version = target.chain.version
        update = update_of(target, chunk, write, version, identity)
        write.fresh = update.fresh  # for the successor
        failure = target.engine.failure
        with self._successor.ahead_call() as ahead:
            staged_at = None
            if write.version or has_ample_room(target, write):
                staged_at = ahead.begin(target, write, version, update.stamp, payload, deadline)
            try:
                pending = await self.persist(target, chunk, update, payload)
            except ThreefsError as error:
                if staged_at is not None and not write.version and not isinstance(error, _REFUSED_EVERYWHERE):
                    note_unforeseen(target, chunk, error)
                    raise outcome_unknown(error) from error  # P11
                if isinstance(error, CorruptChunk):  # also of a lost chunk: the predecessor has it, or the head refuses
                    raise CorruptChunk(error.message) from error
                # When the disk fails while it writes the record, the version may be there after a restart.
                raise (error if target.engine.failure is failure else outcome_unknown(error)) from error
            self._trace.add(chunk, "staged", version=version, chain_version=chain_version)
            if target.chain.version == chain_version:
                target.current_pending.add(chunk)
            await ahead.sent(target)
            staged_at = None if ahead.has_failed else staged_at
            try:
                check_change(target, chunk, pending, write)
                return await self.replicate(target, chunk, pending, deadline, write, payload, staged_at=staged_at)
            except ThreefsError as error:  # even if it claims no effect: the version is durable, may yet be committed
                raise outcome_unknown(error) from error

    def persist(self, target: Target, chunk: ChunkId, update: Update, payload: Buffer) -> Awaitable[Version]:
        return target.engine.stage(chunk, update, payload=payload)

    async def replicate(
        self,
        target: Target,
        chunk: ChunkId,
        pending: Version,
        deadline: float,
        write: pb.ChunkWrite | None = None,
        payload: Buffer = b"",
        *,
        staged_at: TargetId | None = None,
    ) -> WriteResult:
        """Forward a durable pending version until the successor has committed it, then commit it here.

        The successor is looked up now, and again after each failure and each chain change (R3). `write` and `payload`
        are the change; without them the whole chunk is read and sent. `staged_at` is the successor to which the payload
        has gone ahead. Raises CorruptChunk if the bytes of the chunk are damaged.
        """
        assert chunk not in target.early, "an early version is not replicated before its forward has come (P4)"
        if chunk.number == FENCE_CHUNK:
            await self._drop_early_behind_fence(target, chunk.inode, deadline)
        attempts = 0
        while True:
            chain_version = target.chain.version
            admission.check(target, chain_version, syncing=True)
            target.check_epoch(chunk)
            if not target.serving and pending.chain_version != chain_version:
                raise ChainChanged(  # R5
                    f"target {target.target_id} became syncing after it had staged version {pending.version}"
                )
            successor = target.successor
            if successor is None:
                break
            self._trace.add(chunk, "forwarding", version=pending.version, to=successor.target_id)
            is_staged = staged_at == successor.target_id and successor.state is PublicState.SERVING
            try:
                result = await self._successor.forward(
                    target, successor, chunk, pending, write, payload, deadline, is_staged=is_staged
                )
            except ThreefsError as error:
                if is_staged and isinstance(error, NotStaged):
                    staged_at = None  # it was lost on its way, or was dropped
                    continue
                if isinstance(error, CorruptChunk):
                    target.note_damage(chunk)
                if error.retry is Retry.NEVER:
                    raise
                attempts = await self._back_off(target, chain_version, error, attempts, deadline)
                continue
            check_answer(target, chunk, pending, successor, result)
            if target.chain.version == chain_version:
                break
        assert target.serving or target.state is PublicState.SYNCING, "only targets that writes reach commit"
        committed = target.engine.commit(chunk, pending.version, target.chain.version)
        assert committed.content == pending.content, "a commit changes neither version nor content"
        target.note_committed(chunk)
        self._trace.add(chunk, "committed", version=pending.version, chain_version=target.chain.version)
        return _result_of(pending)

    async def _drop_early_behind_fence(self, target: Target, inode: int, deadline: float) -> None:
        """A fence is pending here, so nothing that was sent under an older one is staged early any more. What was
        staged early before may be of a write that no target before this one has. It would be finished when this target
        becomes head, or when it has restarted, so it is dropped durably before the fence stands (P13)."""
        chunks = [chunk for chunk in target.early if chunk.inode == inode]
        for chunk in chunks:
            async with self.locked_change(target, chunk, deadline):
                target.drop_early(chunk)
        if chunks:
            await target.engine.flush()

    async def _back_off(
        self, target: Target, chain_version: int, error: ThreefsError, attempts: int, deadline: float
    ) -> int:
        """Wait before the next attempt, but not when the chain has changed. Raises DeadlineExceeded."""
        if target.chain.version != chain_version:
            return 0
        pause_s = _BACKOFF.pause_s(attempts, self._random)
        if self._clock.monotonic() + pause_s >= deadline:
            raise DeadlineExceeded(
                f"the successor of target {target.target_id} did not take the write before the deadline: {error}"
            )
        with contextlib.suppress(ChainChanged):
            await target.cancel_on_chain_change(self._clock.sleep(pause_s))
        return attempts + 1


def _result_of(version: Version) -> WriteResult:
    return WriteResult(version.version, version.length, version.checksum)
