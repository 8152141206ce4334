"""Damaged chunks are made good from another member of the chain, while readers are served by the others (I12).

What is good is known from a record: this target's own, or that of another one that serves. Where no member has the
bytes any more, the chunk is marked as lost: reads of it fail with words that say so, and nothing waits for it any
longer. A lost chunk is whole again when somebody overwrites it, or when a member comes back that has a good copy.
"""

import asyncio
import dataclasses
import enum
from itertools import islice

import structlog

from threefs.background import BackgroundTasks
from threefs.backoff import Backoff
from threefs.env.clock import Clock
from threefs.errors import Corrupt, CorruptChunk, DiskFailed, ThreefsError
from threefs.ids import ChunkId, TargetId, WriteIdentity
from threefs.wire import storage_pb2 as pb
from threefs_storage.chain.copies import Copies
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.write_messages import entries_of
from threefs_storage.engine.content_plan import Kind, Update, replacement
from threefs_storage.engine.exactly_once import Forgotten
from threefs_storage.engine.records import Record, Version
from threefs_storage.target import Target

_TURN_S = 20.0
_BACKOFF = Backoff(0.2, 30.0)
#: Lost chunks that are looked for again in one round; a round comes with each change of the chain.
_MOST_LOST = 256
#: Where even the number of the lost version is not known, the next one is beyond all that may have been.
_BEYOND = 1 << 32

_LOG = structlog.get_logger()


class Outcome(enum.Enum):
    """How an attempt to make a chunk good has ended."""

    SOUND = "it was not damaged after all"
    REPAIRED = "repaired"
    LOST = "no member has the bytes"
    LATER = "to be tried again"


class Repair:
    """One task per target; it sleeps while nothing is damaged."""

    def __init__(self, craq: Craq, copies: Copies, *, clock: Clock) -> None:
        self._craq = craq
        self._copies = copies
        self._clock = clock
        self._background = BackgroundTasks()

    def start(self, target: Target) -> None:
        self._background.start(f"repair of target {target.target_id}", self._run(target))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, target: Target) -> None:
        rounds = 0
        while True:
            target.damage_added.clear()
            for chunk in list(target.damaged):
                await self.repair(target, chunk)
            for chunk in list(islice(target.engine.lost_chunks, _MOST_LOST)):
                await self.repair(target, chunk)
            is_sound = not target.damaged and not target.engine.lost_chunks
            try:
                async with asyncio.timeout(None if is_sound else _BACKOFF.limit_s(rounds)):
                    await target.damage_added.wait()
                rounds = 0
            except TimeoutError:
                rounds += 1

    async def repair(self, target: Target, chunk: ChunkId) -> Outcome:
        """Make a chunk good, or find that it is lost. Raises nothing."""
        was_lost = chunk in target.engine.lost_chunks
        try:
            outcome = await self._repair(target, chunk, self._clock.monotonic() + _TURN_S)
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
            target.check(target.chain.version)
            outcomes = []
            for version_of in (_pending, _committed):  # what was pending may be committed by then
                try:
                    version = version_of(target.engine.record(chunk) or Record())
                except Corrupt:
                    return await self._repair_record(target, chunk, deadline)
                if version is not None and version.length:
                    outcomes.append(await self._repair_version(target, chunk, version, deadline))
            known = [outcome for outcome in Outcome if outcome in outcomes]
            return known[-1] if known else Outcome.SOUND

    async def _repair_version(self, target: Target, chunk: ChunkId, version: Version, deadline: float) -> Outcome:
        """A version whose record is good."""
        if await _sound(target, version):
            return Outcome.SOUND
        content = await self._copies.content(target, chunk, version)
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
            # It may not be dropped, for it may have been committed elsewhere, and not be finished either.
            target.engine.fail(Corrupt(f"version {version.version} of chunk {chunk} is pending and cannot be read"))
            return Outcome.LATER
        await self._craq.replicate(target, chunk, target.engine.mark_lost(chunk, version), deadline)
        return Outcome.LOST

    async def _repair_record(self, target: Target, chunk: ChunkId, deadline: float) -> Outcome:
        """Without its record nobody here knows which version is committed."""
        for member, newest in _others(target):
            try:
                message = await self._copies.record(target, member, chunk, newest=newest)
            except Corrupt:
                continue
            if message is None:
                target.engine.forget(chunk)  # nothing was committed here either (I3)
                return Outcome.REPAIRED
            return await self._adopt(target, chunk, _update(message, target.chain.version), deadline)
        return await self._repair_alone(target, chunk, deadline)

    async def _repair_alone(self, target: Target, chunk: ChunkId, deadline: float) -> Outcome:
        """Nobody else that serves has a record that can be read: this one's own bytes may still tell what it was."""
        record = target.engine.corrected(chunk) or Record()
        for version in (record.pending, record.committed):
            if version is None:
                continue
            results = record.next_entries if version is record.pending else (record.entries, record.forgotten)
            content = await _own(target, version)
            if content is None:
                content = await self._copies.content(target, chunk, version)
            if content is not None:
                update = replacement(version, *results)
                return await self._install(target, chunk, update, content, deadline)
        known = max((v.version for v in (record.pending, record.committed) if v is not None), default=0)
        lost = Update(Kind.REPLACE, known + _BEYOND, target.chain.version, entries=(), lost=True, admitted=True)
        return await self._install(target, chunk, lost, None, deadline)

    async def _adopt(self, target: Target, chunk: ChunkId, update: Update, deadline: float) -> Outcome:
        """What another one that serves has committed, with the bytes from whoever has them."""
        content: bytearray | None = bytearray()
        if update.length and not update.lost:
            wanted = Version(update.version, 0, update.length, update.checksum, None, 0, b"")
            content = await self._copies.content(target, chunk, wanted)
        return await self._install(target, chunk, update, None if update.lost else content, deadline)

    async def _install(
        self, target: Target, chunk: ChunkId, update: Update, content: bytearray | None, deadline: float
    ) -> Outcome:
        """Make it the committed version here, and pass it on as any other one."""
        lost = content is None
        change = dataclasses.replace(update, chain_version=target.chain.version, lost=lost)
        target.check(change.chain_version)
        pending = await target.engine.stage(chunk, change, payload=content or b"")
        await self._craq.replicate(target, chunk, pending, deadline)
        return Outcome.LOST if lost else Outcome.REPAIRED


def _pending(record: Record) -> Version | None:
    return record.pending


def _committed(record: Record) -> Version | None:
    return record.committed


def _others(target: Target) -> list[tuple[TargetId, bool]]:
    """The other serving members in the order in which they are asked, and whether what they have pending counts.

    Those behind this one have all that it has committed. So have those before it, and what they have pending is on its
    way here, but waits for this repair.
    """
    serving = target.chain.serving
    place = serving.index(target.target_id)
    return [(t, False) for t in serving[place + 1 :]] + [(t, True) for t in reversed(serving[:place])]


async def _sound(target: Target, version: Version) -> bool:
    try:
        await target.engine.verify(version)
    except (CorruptChunk, DiskFailed):
        return False
    return True


async def _own(target: Target, version: Version) -> bytearray | None:
    """The bytes that a corrected record names, if they are there."""
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
