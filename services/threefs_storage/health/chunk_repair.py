"""Repair of damaged chunks from other members of the chain, which serve the readers until then (I12).

A record says which content is the right one: the record of this target, or that of another serving member. If no member
has the content any more, the chunk is marked as lost: reads of it fail and say so, and nothing waits for it any longer.
A lost chunk is whole again when a write replaces it, or when a member with a good copy returns.
"""

import asyncio
import dataclasses
import enum
from bisect import bisect_right
from functools import partial

import structlog

from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.backoff import Backoff
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, ThreefsError
from threefs.ids import ChunkId, TargetId, WriteIdentity
from threefs.layout import FENCE_CHUNK
from threefs.transfer_time import transfer_s
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain import admission
from threefs_storage.chain.copies import Copies
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.write_messages import entries_of
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.content_plan import Kind, Update, replacement
from threefs_storage.engine.exactly_once import Forgotten
from threefs_storage.health.salvage import salvage
from threefs_storage.scheduling.background_scheduler import BackgroundScheduler, Work
from threefs_storage.target import Target

_TURN_S = 20.0  # and the time of the bytes, which come from another member and go to the successor
_BACKOFF = Backoff(0.2, 30.0)
#: Lost chunks that are tried again in one round, in key order. Each change of the chain starts a round.
_MAX_LOST = 256
#: Added to the version of a lost chunk whose record is damaged, so that the next version is above all earlier ones.
_BEYOND = 1 << 32

_LOG = structlog.get_logger()


class Outcome(enum.Enum):
    """The result of an attempt to repair a chunk."""

    SOUND = "it was not damaged after all"
    REPAIRED = "repaired"
    LOST = "no member has the bytes"
    LATER = "to be tried again"


class Repair:
    """One task per target. It sleeps while no chunk is damaged."""

    def __init__(self, craq: Craq, copies: Copies, scheduler: BackgroundScheduler, *, clock: Clock) -> None:
        self._craq = craq
        self._scheduler = scheduler
        self._copies = copies
        self._clock = clock
        self._background = BackgroundTasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, target: Target) -> None:
        self._tasks[target.target_id] = self._background.run(f"repair of target {target.target_id}", self._run(target))

    async def end(self, target: Target) -> None:
        """The target was taken out of its chain for good."""
        await cancel_and_wait(self._tasks.pop(target.target_id))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, target: Target) -> None:
        rounds, last = 0, ChunkId(0, 0)
        while True:
            target.damage_added.clear()
            repaired, lost = target.repaired_chunks, _next_lost(target, last)
            last = lost[-1] if lost else last
            for chunk in [*target.damaged, *lost]:
                async with self._scheduler.turn(Work.REPAIR, target.length_of(chunk)):
                    await self.repair(target, chunk)
            if target.repaired_chunks > repaired:
                rounds = 0  # who had these bytes may have those of others, too
            is_sound = not target.damaged and not target.engine.lost_chunks
            try:
                async with asyncio.timeout(None if is_sound else _BACKOFF.limit_s(rounds)):
                    await target.damage_added.wait()
                rounds = 0
            except TimeoutError:
                rounds += 1

    async def repair(self, target: Target, chunk: ChunkId) -> Outcome:
        """Repair a chunk, or mark it as lost. Raises nothing."""
        was_lost = chunk in target.engine.lost_chunks
        turn_s = _TURN_S + transfer_s(target.length_of(chunk), target.hops_behind + 1)
        try:
            outcome = await self._repair(target, chunk, self._clock.monotonic() + turn_s)
        except ThreefsError as error:
            _LOG.debug("a damaged chunk cannot be repaired now", chunk=chunk, error=str(error))
            return Outcome.LATER
        except Exception:
            _LOG.exception("a damaged chunk cannot be repaired", chunk=chunk)
            return Outcome.LATER
        if outcome is not Outcome.LATER:
            target.damaged.pop(chunk, None)
        if outcome is Outcome.REPAIRED:
            target.repaired_chunks += 1
            self._craq.trace_repaired(target, chunk)
            _LOG.info("a damaged chunk is repaired", target=target.target_id, chunk=chunk)
        elif outcome is Outcome.LOST and not was_lost:
            _LOG.warning("a damaged chunk is lost: it is not good elsewhere", target=target.target_id, chunk=chunk)
        return outcome

    async def _repair(self, target: Target, chunk: ChunkId, deadline: float) -> Outcome:
        async with self._craq.locked_change(target, chunk, deadline):
            admission.check(target, target.chain.version)
            outcomes = []
            for version_of in (_pending, _committed):  # the pending version may be committed after the first step
                try:
                    if target.engine.rewrite_damaged(chunk):
                        outcomes.append(Outcome.REPAIRED)
                    target.drop_early(chunk)  # it counts for nothing (P10)
                    version = version_of(target.engine.record(chunk) or Record())
                except Corrupt:
                    return await self._repair_record(target, chunk, deadline)
                if version is not None and version.length:
                    outcomes.append(await self._repair_version(target, chunk, version, deadline))
            worst_last = [outcome for outcome in Outcome if outcome in outcomes]
            return worst_last[-1] if worst_last else Outcome.SOUND

    async def _repair_version(self, target: Target, chunk: ChunkId, version: Version, deadline: float) -> Outcome:
        """Repair the bytes of a version whose record is good."""
        assert version.length, "a version without bytes cannot be damaged"
        assert chunk in target.locks, "a chunk is repaired under its lock"
        if await _is_intact(target, version):
            return Outcome.SOUND
        content = await self._content(target, chunk, version)
        if content is None:
            content = await self._salvaged(target, chunk, version)
        if content is not None:
            await target.engine.restore(chunk, version, content)
            return Outcome.REPAIRED
        if version.lost:
            return Outcome.LOST
        record = target.engine.record(chunk)
        if record is None or version != record.pending:
            target.engine.mark_lost(chunk, version)
            return Outcome.LOST
        if len(target.chain.serving) > 1:
            # It may be committed at another target, so it cannot be dropped; without its bytes it cannot be finished.
            target.engine.fail(Corrupt(f"version {version.version} of chunk {chunk} is pending and cannot be read"))
            return Outcome.LATER
        await self._craq.replicate(target, chunk, target.engine.mark_lost(chunk, version), deadline)
        return Outcome.LOST

    async def _content(self, target: Target, chunk: ChunkId, version: Version) -> bytearray | None:
        """The bytes of exactly this version from any member. Those of a fence are zeros."""
        if chunk.number == FENCE_CHUNK:
            return bytearray(version.length)
        return await self._copies.content(target, chunk, version)

    async def _salvaged(self, target: Target, chunk: ChunkId, version: Version) -> bytearray | None:
        """The content of a version that no other member has, from what is good here and from older versions."""
        if not version.has_bytes:
            return None
        raw = bytearray(version.length)
        parts = await target.engine.read_raw(version, memoryview(raw))
        async for older in self._copies.other_versions(target, chunk):
            if (content := salvage(version, raw, parts, older)) is not None:
                return content
        return None

    async def _repair_record(self, target: Target, chunk: ChunkId, deadline: float) -> Outcome:
        """Repair a chunk whose record is damaged: other members say which version is committed."""
        admission.check(target, target.chain.version)  # it may have left while a version was read
        for member, newest in _others(target):
            try:
                message = await self._copies.record(target, member, chunk, newest=newest)
            except Corrupt:
                continue
            if message is None:
                target.engine.forget(chunk)  # then no version was committed here either (I3)
                target.early.discard(chunk)
                return Outcome.REPAIRED
            return await self._adopt(target, chunk, _update(message, target.chain.version), deadline)
        return await self._repair_alone(target, chunk, deadline)

    async def _repair_alone(self, target: Target, chunk: ChunkId, deadline: float) -> Outcome:
        """No other serving member has a readable record: try to correct a flipped bit in the own one."""
        record = target.engine.corrected(chunk) or Record()
        if chunk in target.early:  # P4
            record = dataclasses.replace(record, pending=None)
        for version in (record.pending, record.committed):
            if version is None:
                continue
            results = record.next_entries if version is record.pending else (record.entries, record.forgotten)
            content = await _own_content(target, version)
            if content is None:
                content = await self._content(target, chunk, version)
            if content is not None:
                update = replacement(version, *results)
                return await self._install(target, chunk, update, content, deadline)
        versions = [v.version for v in (record.pending, record.committed) if v is not None]
        known = max([target.first_version, *versions])
        lost = Update(Kind.REPLACE, known + _BEYOND, target.chain.version, entries=(), lost=True, admitted=True)
        return await self._install(target, chunk, lost, None, deadline)

    async def _adopt(self, target: Target, chunk: ChunkId, update: Update, deadline: float) -> Outcome:
        """Take over the committed version of another serving member, with the bytes from any member."""
        content: bytearray | None = bytearray()
        if update.length and not update.lost:
            wanted = Version(update.version, 0, update.length, update.checksum, None, 0, b"")
            content = await self._content(target, chunk, wanted)
        return await self._install(target, chunk, update, None if update.lost else content, deadline)

    async def _install(
        self, target: Target, chunk: ChunkId, update: Update, content: bytearray | None, deadline: float
    ) -> Outcome:
        """Make it the committed version here, and replicate it like any other."""
        lost = content is None
        assert content is None or len(content) == update.length, "a copy is whole"
        assert chunk in target.locks, "a version is installed under the lock of its chunk"
        check = partial(target.check_epoch, chunk)
        change = dataclasses.replace(update, chain_version=target.chain.version, lost=lost, check=check)
        admission.check(target, change.chain_version)
        pending = await target.engine.stage(chunk, change, payload=content or b"")
        target.early.discard(chunk)
        await self._craq.replicate(target, chunk, pending, deadline)
        return Outcome.LOST if lost else Outcome.REPAIRED


def _pending(record: Record) -> Version | None:
    return record.pending


def _committed(record: Record) -> Version | None:
    return record.committed


def _next_lost(target: Target, last: ChunkId) -> list[ChunkId]:
    """The lost chunks of the next round: those behind the last one of the round before, then from the first one on.
    Otherwise chunks that no member has any more would keep those from their turn that a member has."""
    lost = sorted(target.engine.lost_chunks)
    behind = bisect_right(lost, last)
    return [*lost[behind:], *lost[:behind]][:_MAX_LOST]


def _others(target: Target) -> list[tuple[TargetId, bool]]:
    """The other serving members in the order in which they are asked, and whether their pending versions count.

    Members behind this one have committed everything that it has. So have members before it; their pending versions are
    on the way to this target, and wait for this repair.
    """
    serving = target.chain.serving
    place = serving.index(target.target_id)
    others = [(t, False) for t in serving[place + 1 :]] + [(t, True) for t in reversed(serving[:place])]
    assert all(other != target.target_id for other, _ in others), "a target is a member of a chain once"
    return others


async def _is_intact(target: Target, version: Version) -> bool:
    try:
        await target.engine.verify(version)
    except (CorruptChunk, DiskFailed):
        return False
    return True


async def _own_content(target: Target, version: Version) -> bytearray | None:
    """The bytes that a corrected record names; None if they do not match it."""
    content = bytearray(version.length)
    try:
        await target.engine.read_cold(version, 0, memoryview(content), past_cache=True)
    except (CorruptChunk, DiskFailed):
        return None
    return content


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
        forgotten=Forgotten(message.forgotten_version, message.forgotten_stamp),
        stamp=message.stamp,
        admitted=True,
        lost=message.lost,
    )
