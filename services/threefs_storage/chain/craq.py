"""The write path of one target: chain replication with at most one pending version per chunk.

At each replica, under the chunk's lock: finish what is pending, decide whether the write applies, make it durable as
pending, forward it to the successor, and commit once the successor has. So what a predecessor has committed all its
successors have (I3), and an acknowledged write is durable on all of them (I2). R1 to R11 are the rules of the design
that model checking showed to be necessary.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    OutcomeUnknown,
    ResultForgotten,
    Retry,
    StaleFence,
    StaleWrite,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
    VersionGap,
)
from threefs.ids import ChunkId, WriteIdentity
from threefs.layout import FENCE_CHUNK
from threefs.routing import PublicState
from threefs.telemetry.event_trace import EventTrace
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.successor import Successor
from threefs_storage.engine.content_plan import Kind, Update
from threefs_storage.engine.exactly_once import Entry, Forgotten, may_be_forgotten
from threefs_storage.engine.records import Record, Version
from threefs_storage.targets import Target

_BACKOFF = Backoff(0.02, 0.5)
_CLIENT_BYTES = 16
_NO_RECORD = Record()


@dataclass(frozen=True, slots=True)
class Result:
    """A committed write."""

    version: int
    length: int
    checksum: int


class Craq:
    """Writes to the targets of this process."""

    def __init__(
        self,
        successor: Successor,
        story: EventTrace,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._successor = successor
        self._trace = story
        self._clock = clock
        self._random = random

    async def write(self, target: Target, write: pb.ChunkWrite, payload: Buffer, deadline: float) -> Result:
        """Apply one write of a client (version 0) or of a predecessor.

        Raises ChainChanged, NotServing, VersionGap, StaleWrite, StaleFence, ChunkChanged, InvalidArgument,
        ChecksumMismatch, ChunkLost, ResultForgotten, NoSpace: it had no effect. Raises DeadlineExceeded,
        OutcomeUnknown: the version may be pending, and is finished later.
        """
        chunk = ChunkId(write.chunk.inode, write.chunk.index)
        if chunk.number == FENCE_CHUNK and not write.version:
            return await self._raise_fence(target, chunk, write, payload, deadline)
        return await self._write(target, chunk, write, payload, deadline)

    async def _raise_fence(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> Result:
        """From when it is staged, nothing older is admitted. What was admitted before has its end before this is
        answered: nothing that was written under a lock may be seen to come after the next holder has it (I18)."""
        result = await self._write(target, chunk, write, payload, deadline)
        admitted = {*target.locks, *target.engine.pending_chunks} - {chunk}
        for other in [each for each in admitted if each.inode == chunk.inode]:
            await self.finish_pending(target, other, deadline)
        return result

    async def _write(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, payload: Buffer, deadline: float
    ) -> Result:
        if write.kind == pb.FORGET:
            return await self._forget(target, chunk, write, deadline)
        if write.kind == pb.COLLECT:
            return await self._collect_at_successor(target, chunk, write, deadline)
        identity = _identity(write)
        _admit(target, write)
        async with self.locked_change(target, chunk, deadline):
            _admit(target, write)  # R3: the chain may have changed while we waited
            try:
                if write.version:
                    return await self._from_predecessor(target, chunk, write, identity, payload, deadline)
                assert identity is not None
                return await self._from_client(target, chunk, write, identity, payload, deadline)
            except ChunkLost:
                raise
            except (Corrupt, CorruptChunk) as error:  # met before anything of this write was done
                target.note_damage(chunk)
                raise Unavailable(f"chunk {chunk} is damaged here, and will be repaired: {error}") from error

    async def finish_pending(self, target: Target, chunk: ChunkId, deadline: float) -> None:
        """Commit what is pending since before this chain version (or this start of the process), or was given up.

        Raises NotServing, DeadlineExceeded and what the successor refuses with.
        """
        async with self.locked_change(target, chunk, deadline):
            target.check(target.chain.version)
            try:
                record = target.engine.record(chunk)
                if record is None or record.pending is None:
                    return
                if chunk not in target.current_pending or chunk in target.abandoned:
                    await self.replicate(target, chunk, record.pending, deadline)
            except (Corrupt, CorruptChunk) as error:
                target.note_damage(chunk)
                raise Unavailable(f"chunk {chunk} is damaged here, and will be repaired: {error}") from error

    async def send_chunk(self, target: Target, chunk: ChunkId, chain_version: int, deadline: float) -> None:
        """Make a chunk at the syncing successor what it is here, while nobody changes it.

        Raises ChainChanged, NotServing, DeadlineExceeded, CorruptChunk, Corrupt, and what the successor refuses with.
        """
        async with self.locked_change(target, chunk, deadline):
            target.check(chain_version)
            record = target.engine.record(chunk)
            if record is not None and record.pending is not None:
                await self.replicate(target, chunk, record.pending, deadline)
                target.check(chain_version)
                record = target.engine.record(chunk)
            successor = target.chain.successor(target.target_id)
            assert successor is not None, "a syncing successor leaves only with a new chain version"
            committed = record.committed if record is not None else None
            if record is None or committed is None:
                await self._successor.forget(target, successor, chunk, deadline)
            else:
                await self._successor.send_whole_chunk(
                    target, successor, chunk, committed, record.entries, record.forgotten, deadline
                )
            self._trace.add(chunk, "shipped", version=committed.version if committed else 0, to=successor.target_id)

    def trace_repaired(self, target: Target, chunk: ChunkId) -> None:
        """For the chunk's story."""
        record = target.engine.record(chunk)
        committed = record.committed if record is not None else None
        self._trace.add(chunk, "repaired", version=committed.version if committed is not None else 0)

    async def collect_tombstone(self, target: Target, chunk: ChunkId, version: int, deadline: float) -> bool:
        """At the head: forget a chunk whose removal is so old that nothing of before can come any more, on all members.

        The tail does so first. Until the head has done so it knows the number of the removal: the next write comes
        after that, and is taken by all. False if it is kept. Raises what the successor refuses with.
        """
        async with self.locked_change(target, chunk, deadline):
            target.check(target.chain.version)
            target.check_head()
            if not target.all_members_serve or not _is_collectable(target, target.engine.record(chunk), version):
                return False
            await self._collect_tail_first(target, chunk, version, deadline)
            return True

    async def _collect_at_successor(
        self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, deadline: float
    ) -> Result:
        target.check(write.chain_version)
        async with self.locked_change(target, chunk, deadline):
            target.check(write.chain_version)
            target.logical_time.observe(write.stamp)
            record = target.engine.record(chunk)
            if record is not None:  # else it is done here, and so it is behind this one
                if not target.all_members_serve or not _is_collectable(target, record, write.version):
                    raise VersionGap(f"chunk {chunk} is not what the predecessor takes it for: it is kept")
                await self._collect_tail_first(target, chunk, write.version, deadline)
            return Result(0, 0, 0)

    async def _collect_tail_first(self, target: Target, chunk: ChunkId, version: int, deadline: float) -> None:
        chain_version = target.chain.version
        successor = target.chain.successor(target.target_id)
        if successor is not None:
            await self._successor.collect_tombstone(target, successor, chunk, version, deadline)
        target.check(chain_version)
        target.engine.forget(chunk)
        self._trace.add(chunk, "collected", version=version)

    async def _forget(self, target: Target, chunk: ChunkId, write: pb.ChunkWrite, deadline: float) -> Result:
        """The predecessor of this syncing target has no such chunk; what came in this chain version is newer (R5)."""
        target.check(write.chain_version, syncing=True)
        async with self.locked_change(target, chunk, deadline):
            target.check(write.chain_version, syncing=True)
            if target.serving:
                raise VersionGap(f"target {target.target_id} serves: it forgets nothing")
            committed = _record_or_empty(target, chunk).committed
            if committed is None or committed.chain_version != target.chain.version:
                target.engine.forget(chunk)
            return Result(0, 0, 0)

    @asynccontextmanager
    async def locked_change(self, target: Target, chunk: ChunkId, deadline: float) -> AsyncIterator[None]:
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
    ) -> Result:
        record = target.engine.record(chunk) or _NO_RECORD
        if record.pending is not None:  # R6: its entry is not yet a result
            await self.replicate(target, chunk, record.pending, deadline)
            _admit(target, write)
            record = target.engine.record(chunk) or _NO_RECORD
        entry = record.entry(identity.client, identity.channel)
        if entry is not None and entry.seq >= (write.first_seq or identity.seq):
            if entry.seq > identity.seq:
                raise StaleWrite(f"write {identity.seq} of chunk {chunk} came after write {entry.seq} of its channel")
            return Result(entry.version, entry.length, entry.checksum)
        committed = record.committed.version if record.committed is not None else 0
        if write.only_version and write.only_version != committed:
            raise ChunkChanged(f"chunk {chunk} has version {committed}, the change is meant for {write.only_version}")
        if record.committed is not None and record.committed.lost and _builds_on(record.committed, write):
            raise ChunkLost(f"the bytes of chunk {chunk} are lost: it can only be overwritten as a whole, or removed")
        if write.fence and write.fence <= target.engine.fences.get(chunk.inode, 0):
            raise StaleFence(f"locks on inode {chunk.inode} were taken away since this write's session began")
        if entry is None and may_be_forgotten(record.forgotten, write.known_version, target.logical_time.now):
            if write.again or write.first_seq:
                raise OutcomeUnknown(f"the result of write {identity.seq} of chunk {chunk} may have been forgotten")
            raise ResultForgotten(version=committed)
        version = committed + 1 if record.committed is not None else target.first_version
        result = await self._stage(target, chunk, write, version, identity, payload, deadline)
        try:  # others may have left since it was admitted: then it is committed on fewer targets than it needs
            target.check_min_replicas()
        except TooFewReplicas as error:
            raise OutcomeUnknown(f"the write is not on enough targets to be acknowledged: {error}") from None
        return result

    async def _from_predecessor(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        identity: WriteIdentity | None,
        payload: Buffer,
        deadline: float,
    ) -> Result:
        if not target.serving:
            return await self._replace(target, chunk, write, identity, payload, deadline)
        record = target.engine.record(chunk) or _NO_RECORD
        pending = record.pending
        if pending is not None:
            repeat = pending.version == write.version
            result = await self.replicate(target, chunk, pending, deadline)
            if repeat:
                return result
            _admit(target, write)
            record = target.engine.record(chunk) or _NO_RECORD
        committed = record.committed
        if committed is not None and write.version <= committed.version:
            return Result(committed.version, committed.length, committed.checksum)
        absent = committed is None or committed.removed
        if write.version != (committed.version if committed is not None else 0) + 1 and not (write.fresh and absent):
            have = committed.version if committed is not None else 0
            raise VersionGap(f"version {write.version} of chunk {chunk} cannot follow {have}")  # R4
        return await self._stage(target, chunk, write, write.version, identity, payload, deadline)

    async def _replace(
        self,
        target: Target,
        chunk: ChunkId,
        write: pb.ChunkWrite,
        identity: WriteIdentity | None,
        payload: Buffer,
        deadline: float,
    ) -> Result:
        """At a syncing target: whatever it held gives way, but for what came under this very chain version (R5)."""
        if write.kind != pb.REPLACE:
            raise VersionGap(f"target {target.target_id} is syncing: it takes whole chunks")
        committed = (_record_or_empty(target, chunk)).committed
        if (
            committed is not None
            and not committed.lost
            and committed.chain_version == target.chain.version
            and committed.version >= write.version
        ):
            return Result(committed.version, committed.length, committed.checksum)
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
    ) -> Result:
        """Durable here first, then on to the successor (R11)."""
        if self._clock.monotonic() >= deadline:
            raise DeadlineExceeded("the write's time was over before it began")
        chain_version = target.chain.version
        update = Update(
            kind=write.kind,
            version=version,
            chain_version=chain_version,
            offset=write.offset,
            length=write.length,
            checksum=write.checksum,
            chunk_bytes=write.chunk_bytes,
            identity=identity,
            removed=write.removed,
            entries=entries_of(write) if write.kind == pb.REPLACE else None,
            admitted=write.version != 0 or chunk.number == FENCE_CHUNK,
            fresh=write.fresh or (not write.version and _absent(target, chunk)),
            lost=write.lost,
            forgotten=Forgotten(write.forgotten_version, write.forgotten_stamp),
            stamp=_stamp(target, write),
        )
        failure = target.engine.failure
        try:
            pending = await target.engine.stage(chunk, update, payload=payload)
        except ThreefsError as error:
            if isinstance(error, CorruptChunk):
                raise CorruptChunk(
                    error.message
                ) from error  # a lost one too: the predecessor has it, or the head refuses
            # When the disk fails under the record's own write, nobody knows whether it is there.
            raise (error if target.engine.failure is failure else _outcome_unknown(error)) from error
        self._trace.add(chunk, "staged", version=version, chain_version=chain_version)
        if target.chain.version == chain_version:
            target.current_pending.add(chunk)
        write.fresh = update.fresh  # for the successor
        try:
            return await self.replicate(target, chunk, pending, deadline, write, payload)
        except ThreefsError as error:  # whatever it says of itself: this version is durable and may be committed yet
            raise _outcome_unknown(error) from error

    async def replicate(
        self,
        target: Target,
        chunk: ChunkId,
        pending: Version,
        deadline: float,
        write: pb.ChunkWrite | None = None,
        payload: Buffer = b"",
    ) -> Result:
        """Forward a durable pending version until the successor has committed it, then commit it here.

        The successor is looked up now, and again after each failure and each chain change (R3). `write` and `payload`
        are the change itself; without them the whole content is read and sent. Raises CorruptChunk: it cannot be read.
        """
        attempts = 0
        while True:
            chain_version = target.chain.version
            target.check(chain_version, syncing=True)
            target.check_epoch(chunk)
            if not target.serving and pending.chain_version != chain_version:
                raise ChainChanged(f"target {target.target_id} is syncing since version {pending.version} came")  # R5
            successor = target.chain.successor(target.target_id)
            if successor is None:
                break
            self._trace.add(chunk, "forwarding", version=pending.version, to=successor.target_id)
            try:
                result = await self._successor.forward(target, successor, chunk, pending, write, payload, deadline)
            except ThreefsError as error:
                if isinstance(error, CorruptChunk):
                    target.note_damage(chunk)
                if error.retry is Retry.NEVER:
                    raise
                attempts = await self._back_off(target, chain_version, error, attempts, deadline)
                continue
            if result.version == pending.version and (result.length, result.checksum) != (
                pending.length,
                pending.checksum,
            ):
                raise ChecksumMismatch(
                    f"version {pending.version} of chunk {chunk} is not the same at target {successor.target_id}"
                )
            if target.chain.version == chain_version:
                break
        assert target.serving or target.state is PublicState.SYNCING, "only who is in the write path commits"
        target.engine.commit(chunk, pending.version, target.chain.version)
        target.note_committed(chunk)
        self._trace.add(chunk, "committed", version=pending.version, chain_version=target.chain.version)
        return Result(pending.version, pending.length, pending.checksum)

    async def _back_off(
        self, target: Target, chain_version: int, error: ThreefsError, attempts: int, deadline: float
    ) -> int:
        """Wait before the next attempt, not at all if the chain has changed meanwhile. Raises DeadlineExceeded."""
        if target.chain.version != chain_version:
            return 0
        pause_s = _BACKOFF.pause_s(attempts, self._random)
        if self._clock.monotonic() + pause_s >= deadline:
            raise DeadlineExceeded(f"the successor of target {target.target_id} did not take the write: {error}")
        await self._clock.sleep(pause_s)
        return attempts + 1


def _admit(target: Target, write: pb.ChunkWrite) -> None:
    """R3: the chain version of the request is that of this target; clients' writes come to the head."""
    target.check(write.chain_version, syncing=write.version != 0)
    if write.version == 0:
        target.check_head()
        target.check_min_replicas()


def _absent(target: Target, chunk: ChunkId) -> bool:
    committed = (target.engine.record(chunk) or _NO_RECORD).committed
    return committed is None or committed.removed


def _is_collectable(target: Target, record: Record | None, version: int) -> bool:
    if record is None or record.pending is not None or record.committed is None:
        return False
    return record.collectable(target.logical_time.now) and record.committed.version == version < target.first_version


def _stamp(target: Target, write: pb.ChunkWrite) -> int:
    """The head gives it to a client's write."""
    if not write.version:
        return target.logical_time.now
    target.logical_time.observe(write.stamp)
    return write.stamp


def _builds_on(lost: Version, write: pb.ChunkWrite) -> bool:
    """Whether a write keeps anything of the content before it. How long a lost chunk of length 0 was nobody knows."""
    if write.kind == pb.WRITE:
        return write.offset > 0 or write.length < (lost.length or write.chunk_bytes)
    return write.kind == pb.EXTEND or (write.kind == pb.TRUNCATE and write.length > 0)


def _outcome_unknown(error: ThreefsError) -> ThreefsError:
    """An error that does not claim that there was no effect."""
    if error.retry is Retry.UNKNOWN:
        return error
    return OutcomeUnknown(f"the write is pending, and may be committed later: {error}")


def _record_or_empty(target: Target, chunk: ChunkId) -> Record:
    """At a syncing target even a damaged record is only something to be replaced."""
    try:
        return target.engine.record(chunk) or _NO_RECORD
    except Corrupt:
        return _NO_RECORD


def _identity(write: pb.ChunkWrite) -> WriteIdentity | None:
    """None for the replace of a version that no client's write made."""
    identity = write.identity
    if write.kind not in _KINDS or (write.kind == pb.REPLACE and not write.version):
        raise InvalidArgument(f"a write of kind {write.kind} is not for clients")
    if write.kind == pb.REPLACE and not identity.client:
        return None
    if len(identity.client) != _CLIENT_BYTES or not identity.seq:
        raise InvalidArgument(f"a write needs an identity: {_CLIENT_BYTES} bytes of client, and a sequence number")
    return WriteIdentity(identity.client, identity.channel, identity.seq)


_KINDS = frozenset(int(kind) for kind in Kind)


def entries_of(write: pb.ChunkWrite) -> tuple[Entry, ...]:
    """The results that travel with a whole chunk."""
    return tuple(
        Entry(e.identity.client, e.identity.channel, e.identity.seq, e.version, e.length, e.checksum, e.stamp)
        for e in write.entries
        if len(e.identity.client) == _CLIENT_BYTES
    )
