"""Chain replication without one of its rules R3 to R6 and R11."""

import asyncio
import contextlib
import dataclasses
import math
from typing import Any

from threefs_storage.chain import admission, agreement, changes, early_staging
from threefs_storage.chain import craq as craq_module
from threefs_storage.chain.craq import Craq, WriteResult
from threefs_storage.chain.pending_recovery import PendingRecovery
from threefs_storage.chain.resync import Resync
from threefs_storage.chain.successor import Successor
from threefs_storage.chain.version_query import VersionQuery
from threefs_storage.chain.write_messages import WholeChunk
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.target import Target
from threefs_storage.targets import Targets

from tests.sim.planted.registry import plant, plant_for, put
from threefs.checksums import crc32c
from threefs.errors import ThreefsError
from threefs.routing import LocalState
from threefs.wire import storage_pb2 as pb


@plant
def commit_before_successor() -> None:
    """The head answers, and commits, without waiting for its successor."""
    forward = Successor.forward

    async def hasty(
        self: Successor, target: Target, successor: Any, chunk: Any, pending: Any, *a: Any, **b: Any
    ) -> Any:
        _GOING_ON.append(asyncio.ensure_future(_quiet(forward(self, target, successor, chunk, pending, *a, **b))))
        return WriteResult(pending.version, pending.length, pending.checksum)

    put(Successor, "forward", hasty)


async def _quiet(work: Any) -> None:
    with contextlib.suppress(ThreefsError):
        await work


_GOING_ON: list[Any] = []


@plant
def first_version_that_is_finished_later_is_not_fresh() -> None:
    """Its number is made of the chain's logical time, so the successor waits for the version before it."""
    send = Successor.send_whole_chunk

    async def stale(self: Successor, target: Target, successor: Any, whole: WholeChunk, deadline: float) -> Any:
        return await send(self, target, successor, dataclasses.replace(whole, fresh=False), deadline)

    put(Successor, "send_whole_chunk", stale)


@plant
def failed_forward_is_taken_for_done() -> None:
    forward = Successor.forward

    async def careless(
        self: Successor, target: Target, successor: Any, chunk: Any, pending: Any, *a: Any, **b: Any
    ) -> Any:
        try:
            return await forward(self, target, successor, chunk, pending, *a, **b)
        except ThreefsError:
            return WriteResult(pending.version, pending.length, pending.checksum)

    put(Successor, "forward", careless)


@plant
def chain_version_ignored() -> None:
    """R3, I5: requests of any chain version are served."""
    check = admission.check

    def lax(target: Target, chain_version: int, *, syncing: bool = False) -> None:
        check(target, target.chain.version, syncing=syncing)

    put(admission, "check", lax)


@plant
def lease_ignored() -> None:
    """R1, R2, I5: a target serves whether it holds a lease or not."""

    def open_grant(self: Targets) -> Any:
        def grant(targets: Any, until: float) -> None:
            for target in self:
                target.leased_until = math.inf

        return grant

    put(Targets, "open_grant", open_grant)


@plant
def identity_forgotten() -> None:
    """I6: a repeated write is applied again."""
    put(Record, "entry", lambda self, client, channel: None)


@plant
def entries_not_shipped() -> None:
    """R6: a whole chunk travels without the results of its writes."""
    send = Successor.send_whole_chunk

    async def bare(self: Successor, target: Any, successor: Any, whole: Any, deadline: float) -> Any:
        return await send(self, target, successor, dataclasses.replace(whole, entries=()), deadline)

    put(Successor, "send_whole_chunk", bare)


@plant
def pending_not_finished_before_read() -> None:
    """After a chain change the tail answers with the old version, though the one before it has shown the new one."""

    class All(set):  # type: ignore[type-arg]
        def __contains__(self, chunk: object) -> bool:
            return True

    init = Target.__init__

    def with_all(self: Target, *args: Any, **more: Any) -> None:
        init(self, *args, **more)
        self.current_pending = All()

    put(Target, "__init__", with_all)


@plant
def tail_not_asked() -> None:
    """A replica with a pending version answers with its committed one."""

    async def never(self: VersionQuery, target: Target, chunk: Any, deadline: float) -> int:
        return 0

    put(VersionQuery, "committed_version", never)


@plant
def pending_shown_early() -> None:
    """A replica answers with its pending version, whether it is committed at the tail or not."""

    async def newest(self: VersionQuery, target: Target, chunk: Any, deadline: float) -> int:
        record = target.engine.record(chunk)
        return record.pending.version if record is not None and record.pending is not None else 0

    put(VersionQuery, "committed_version", newest)


@plant
def syncing_keeps_pending() -> None:
    """R5: what was pending before survives the beginning of a resync."""
    put(Target, "drop_outdated", lambda self, chunk: True)
    put(Target, "drop_all_outdated", lambda self: True)


@plant
def finisher_off() -> None:
    """What a crash or a client that gave up has left pending stays so."""
    put(PendingRecovery, "restart", lambda self, target: target.pending_recovered.set())


@plant
def older_pending_dropped() -> None:
    """A write does not finish the pending version before it, but takes its place."""
    from_client = Craq._from_client

    async def dropping(self: Craq, target: Target, chunk: Any, *rest: Any) -> Any:
        record = target.engine.record(chunk)
        if record is not None and record.pending is not None:
            target.engine.drop_pending(chunk)
        return await from_client(self, target, chunk, *rest)

    put(Craq, "_from_client", dropping)


@plant
def promoted_too_early() -> None:
    """I7: a syncing target says at once that nothing is missing."""
    state = Target.local_state.fget  # type: ignore[attr-defined]
    put(Target, "local_state", property(lambda self: max(state(self), 1) if self.leaving else LocalState.UPTODATE))


@plant
def resync_ships_nothing() -> None:
    async def ship(self: Resync, target: Any, chunk: Any, chain_version: int) -> bool:
        return True

    put(Resync, "_send", ship)


@plant
def parts_sent_to_syncing() -> None:
    """R4: a syncing target takes a part of a chunk on top of whatever it holds."""
    kinds = Craq._from_predecessor

    async def forwarded(
        self: Craq, target: Target, chunk: Any, write: Any, identity: Any, payload: Any, end: Any
    ) -> Any:
        before, target.serving = target.serving, True
        try:
            return await kinds(self, target, chunk, write, identity, payload, end)
        finally:
            target.serving = before

    put(Craq, "_from_predecessor", forwarded)


@plant_for(
    "cluster/services/threefs_storage/chain/test_craq.py::test_r3_the_chain_version_is_checked_again_under_the_lock"
)
def chain_not_looked_at_under_the_lock() -> None:
    """R3: the chain version is checked when a write comes, and not again once it has the chunk's lock."""
    check = admission.check
    check_write = admission.check_write

    def once(target: Target, write: Any) -> None:
        if not getattr(target, "admitting", False):
            check_write(target, write)

    changing = Craq.locked_change

    @contextlib.asynccontextmanager
    async def unchecked(self: Craq, target: Target, chunk: Any, deadline: float) -> Any:
        async with changing(self, target, chunk, deadline):
            target.admitting = True  # type: ignore[attr-defined]
            try:
                yield
            finally:
                target.admitting = False  # type: ignore[attr-defined]

    def checked(target: Target, chain_version: int, *, syncing: bool = False) -> None:
        if not getattr(target, "admitting", False):
            check(target, chain_version, syncing=syncing)

    put(admission, "check_write", once)
    put(Craq, "locked_change", unchecked)
    put(admission, "check", checked)


@plant_for("cluster/services/threefs_storage/chain/test_craq.py::test_r4_a_gap_is_refused")
def gap_is_taken() -> None:
    """R4: a version beyond the next one is taken, with only a part of the chunk."""
    stage = ChunkEngine._base_record

    def current(self: ChunkEngine, chunk: Any, update: Any) -> Record:
        record = self.record(chunk)
        if record is not None and record.pending is None and update.kind != pb.REPLACE:
            return record
        return stage(self, chunk, update)

    forwarded = Craq._from_predecessor

    async def any_version(self: Craq, target: Target, chunk: Any, write: Any, *rest: Any) -> Any:
        record = target.engine.record(chunk) or Record()
        committed = record.committed.version if record.committed is not None else 0
        if target.serving and record.pending is None and write.version > committed + 1:
            return await self._stage(target, chunk, write, write.version, *rest)
        return await forwarded(self, target, chunk, write, *rest)

    put(ChunkEngine, "_base_record", current)
    put(Craq, "_from_predecessor", any_version)


@plant_for("contract/test_syncing_target.py::test_r5_a_replace_never_lowers_what_came_under_the_same_chain_version")
def replace_lowers_a_version() -> None:
    """R5: a whole chunk takes the place even of a newer version of the same chain version."""
    current = ChunkEngine._base_record

    def lowered(self: ChunkEngine, chunk: Any, update: Any) -> Record:
        with contextlib.suppress(ThreefsError):
            return current(self, chunk, update)
        return self.record(chunk) or Record()

    async def replaced(
        self: Craq, target: Target, chunk: Any, write: Any, identity: Any, payload: Any, end: Any
    ) -> Any:
        return await self._stage(target, chunk, write, write.version, identity, payload, end)

    put(ChunkEngine, "_base_record", lowered)
    put(Craq, "_replace", replaced)


@plant_for("contract/test_syncing_target.py::test_r12_a_change_that_slept_while_its_target_was_out_is_void")
def change_outlives_a_demotion() -> None:
    """R12: a change that slept in the disk while its target was put out and returned goes on when it wakes up."""
    put(Target, "check_epoch", lambda self, chunk: None)


@plant
def result_of_a_pending_write() -> None:
    """R6: a repeat is answered with what is pending, before that is committed anywhere."""
    from_client = Craq._from_client

    async def hasty(self: Craq, target: Target, chunk: Any, write: Any, identity: Any, *rest: Any) -> Any:
        record = target.engine.record(chunk)
        pending = record.pending if record is not None else None
        if pending is not None and pending.identity == identity:
            return WriteResult(pending.version, pending.length, pending.checksum)
        return await from_client(self, target, chunk, write, identity, *rest)

    put(Craq, "_from_client", hasty)


@plant
def shipped_entries_are_added() -> None:
    """R6: results that come with a whole chunk are put behind the local ones instead of taking their place."""
    after_commit = Record.after_commit

    def added(self: Record, chain_version: int) -> Record:
        shipped = self.incoming_entries if self.incoming_entries is None else (*self.incoming_entries, *self.entries)
        return after_commit(Record(self.committed, self.pending, self.entries, shipped), chain_version)

    put(Record, "after_commit", added)


@plant
def results_are_not_kept_by_a_ship() -> None:
    """R6: a record that came as a whole chunk keeps no results, though they came with it."""
    put(changes, "entries_of", lambda write: ())


@plant
def version_goes_back_after_a_removal() -> None:
    """A removed chunk is forgotten with its number: the next write is version 1 again."""
    commit = ChunkEngine.commit

    def forgetful(self: ChunkEngine, chunk: Any, version: int, chain_version: int) -> Any:
        committed = commit(self, chunk, version, chain_version)
        if committed.removed:
            self.forget(chunk)
        return committed

    put(ChunkEngine, "commit", forgetful)


@plant
def removal_of_whatever_is_there() -> None:
    """A change that is meant for one version is made at any."""
    from_client = Craq._from_client

    async def careless(self: Craq, target: Target, chunk: Any, write: Any, *rest: Any) -> Any:
        write.only_version = 0
        return await from_client(self, target, chunk, write, *rest)

    put(Craq, "_from_client", careless)


@plant
def payload_not_compared() -> None:
    """What came over the wire is not compared with its checksum, and one bit in a thousand bytes has flipped there."""
    stage = Craq._stage

    async def flipped(
        self: Craq, target: Target, chunk: Any, write: Any, version: Any, identity: Any, payload: Any, end: Any
    ) -> Any:
        if len(payload) > 500 and write.kind == pb.WRITE:
            payload = bytearray(payload)
            payload[7] ^= 1
            write.checksum = crc32c(payload)
        return await stage(self, target, chunk, write, version, identity, payload, end)

    put(Craq, "_stage", flipped)


@plant
def target_that_lacks_a_version_stays() -> None:
    """I13: a predecessor whose successor has committed what it has not tries its version for ever."""
    put(craq_module, "check_answer", _without_leaving(agreement.check_answer))


@plant
def gap_at_a_serving_target_stays() -> None:
    """I13: a successor that lacks a version refuses all that follow, for ever."""
    put(craq_module, "check_base", _without_leaving(agreement.check_base))


@plant
def other_content_is_built_upon() -> None:
    """I4, I13: a change is applied to other content than at the predecessor, which nobody notices before it is
    committed."""
    for module in (craq_module, early_staging):
        put(module, "check_change" if module is craq_module else "check_made", lambda *_: None)


class _Stays:
    """A target that leaves for nothing."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def leave_divergent(self, message: str) -> None: ...


def _without_leaving(check: Any) -> Any:
    return lambda target, *args: check(_Stays(target), *args)
