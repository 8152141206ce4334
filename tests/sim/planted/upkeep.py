"""What goes on beside reads and writes: resync, repair, scrubbing; and memory and work that end with their calls."""

import asyncio
from pathlib import Path
from typing import Any

from threefs_meta.lease.lease_reaper import LeaseReaper
from threefs_storage.chain.chunk_locks import ChunkLocks
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.reads import Reads
from threefs_storage.chain.resync import Resync
from threefs_storage.chain.writes import Writes, split_payload
from threefs_storage.engine import chunk_writer
from threefs_storage.engine import engine as engine_module
from threefs_storage.engine.chunk_record import Version
from threefs_storage.engine.content_plan import Update
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.working_memory import WorkingMemory
from threefs_storage.health import target_recovery
from threefs_storage.health.chunk_repair import Repair
from threefs_storage.health.scrubber import Scrubber
from threefs_storage.health.target_recovery import TargetRecovery
from threefs_storage.scheduling.space_release import SpaceRelease
from threefs_storage.service import Storage
from threefs_storage.target import Target
from threefs_storage.targets import Targets

from tests.sim.planted.registry import plant, plant_for, put
from threefs.errors import ThreefsError
from threefs.rpc.methods import HEARTBEAT, SYNC_DONE
from threefs.rpc.server_connection import ServerConnection
from threefs.wire import storage_pb2 as pb


@plant
def nothing_is_repaired() -> None:
    put(Repair, "start", lambda self, target: None)


@plant
def nothing_is_scrubbed() -> None:
    """Damage that nobody reads is not found."""
    put(Scrubber, "_scrub", _nothing)


async def _nothing(self: Scrubber, target: Target) -> None:
    return


@plant
def scrubber_dies() -> None:
    """I19: the scrubber ends with the first target that it cannot look at."""

    async def run(self: Scrubber, targets: list[Target]) -> None:
        while True:
            for target in targets:
                for chunk, _ in target.inventory(None, 1 << 20):
                    if chunk in target.locks:
                        raise RuntimeError("nobody catches this")
                await self._scrub(target)
            await self._clock.sleep(1.0)

    put(Scrubber, "_run", run)


@plant
def free_blocks_are_not_released() -> None:
    """I19: nobody gives free blocks back to the disk."""
    put(SpaceRelease, "start", lambda self, targets: None)


@plant
def leases_of_the_silent_do_not_end() -> None:
    """I19: a meta service counts time, and nobody looks who is silent."""

    def start(self: LeaseReaper) -> None:
        self._background.start("logical clock", self._context.logical_clock.run(self._wake.set))

    put(LeaseReaper, "start", start)


@plant
def requests_of_heartbeats_stay_counted() -> None:
    """I20: a manager counts the bytes of each heartbeat for ever."""
    end = ServerConnection.end

    def counted(self: ServerConnection, call: Any) -> None:
        end(self, call)
        self.server.calls_bytes += call.method is HEARTBEAT

    put(ServerConnection, "end", counted)


@plant
def direct_writes_are_not_padded() -> None:
    """Content past the page cache ends where it ends: a kernel refuses that."""
    put(chunk_writer, "DIRECT_BYTES", 1)


@plant
def damage_is_not_noted() -> None:
    """A read that meets damage goes to another replica, and nobody repairs it."""
    put(Target, "note_damage", lambda self, chunk: False)


@plant
def resync_ends_early() -> None:
    """The last chunks of the inventory are not looked at."""
    pages = Resync._pages

    async def fewer(self: Resync, *args: Any) -> Any:
        async for page in pages(self, *args):
            yield page[: len(page) * 2 // 3]

    put(Resync, "_pages", fewer)


@plant
def resync_leaves_what_is_gone() -> None:
    """What only the successor has stays there."""
    ship = Craq.send_chunk

    async def kept(self: Craq, target: Target, chunk: Any, *rest: Any) -> None:
        record = target.engine.record(chunk)
        if record is not None and record.committed is not None and not record.committed.removed:
            await ship(self, target, chunk, *rest)

    put(Craq, "send_chunk", kept)


@plant
def resync_survives_a_chain_change() -> None:
    """R5: the end of a resync of an older chain version counts."""

    async def done(self: Storage, request: pb.SyncDoneRequest) -> pb.SyncDoneReply:
        target = self._targets.get(request.target)
        target.synced_in_version = target.chain.version
        return pb.SyncDoneReply()

    async def run(self: Resync, target: Target, successor: Any, chain_version: int) -> None:
        for _ in range(50):
            try:
                await target.pending_recovered.wait()
                request = pb.SyncDoneRequest(target=successor, chain_version=chain_version)
                await self._peers.call(successor, SYNC_DONE, request, timeout_s=5.0)
                return
            except ThreefsError:
                await self._clock.sleep(0.2)

    put(Storage, "_sync_done", done)
    put(Resync, "_run", run)


@plant
def full_target_stays() -> None:
    """A replica without room stays in its chain, and every write of the chain waits for it."""
    put(TargetRecovery, "on_no_space", lambda self, target: None)


@plant
def full_target_stays_while_it_is_brought_up_to_date() -> None:
    """The same of a replica that does not serve yet."""
    leave = TargetRecovery.on_no_space

    def stay(self: TargetRecovery, target: Target) -> None:
        if target.serving:
            leave(self, target)

    put(TargetRecovery, "on_no_space", stay)


@plant_for(
    "cluster/services/threefs_storage/health/test_target_recovery.py"
    "::test_of_targets_that_have_left_at_the_same_time_one_returns_without_room"
)
def full_chain_is_read_by_nobody() -> None:
    """All replicas leave at the same time because they are full, and nothing can be removed to make room."""
    put(target_recovery, "_is_needed_for_reads", lambda target: False)


@plant_for("contract/test_storage_memory.py::test_all_targets_of_a_process_share_the_memory_for_changes")
def each_target_works_in_memory_of_its_own() -> None:
    """I20: a process with a hundred targets takes a hundred times as much."""
    open_engine = Targets._open_engine

    async def alone(self: Targets, directory: Path) -> ChunkEngine:
        self._memory = WorkingMemory()
        return await open_engine(self, directory)

    put(Targets, "_open_engine", alone)


@plant_for("contract/test_storage_memory.py::test_heads_towards_each_other_do_not_wait_for_each_others_memory")
def changes_of_predecessors_wait_for_the_memory_of_heads() -> None:
    """Two services, each the head of a chain that ends at the other one, wait for each other until both give up."""
    persist = Craq.persist

    async def wait(self: Craq, target: Target, chunk: Any, update: Update, payload: Any) -> Version:
        if target.is_head:
            return await persist(self, target, chunk, update, payload)
        buffer = await target.engine.joined.take(len(payload))
        try:
            return await persist(self, target, chunk, update, payload)
        finally:
            target.engine.joined.give(buffer)

    put(Craq, "persist", wait)


@plant
def rows_end_with_the_first() -> None:
    """I14: a cancelled batch ends with its first row; its payload is given back while the others still use it."""

    async def write(self: Writes, call: Any) -> None:
        writes = call.request.writes
        parts = split_payload(writes, call.payload)
        rows = (self._write_one(call, one, part) for one, part in zip(writes, parts, strict=True))
        results = await asyncio.gather(*rows)
        call.reply(pb.WriteReply(results=results, routing_version=self._cluster.routing.version))

    put(Writes, "_write", write)


@plant
def payload_given_back_when_cancelled() -> None:
    """I14: the buffer of a call that is cancelled is free at once, while its work goes on."""
    cancel = ServerConnection._cancel

    def early(self: ServerConnection, call_id: int) -> None:
        call = self.calls.get(call_id)
        cancel(self, call_id)
        if call is not None and call.task is not None and call._buffer is not None:
            buffer, call._buffer = call._buffer, None
            self._inflight_bytes -= call.payload_bytes
            self.server.pool.give(buffer)

    put(ServerConnection, "_cancel", early)


@plant
def answer_given_back_before_it_is_sent() -> None:
    """I14: the buffer of an answer is free before its bytes have left."""
    answer = Reads._answer

    def early(self: Reads, call: Any, rows: Any, lengths: Any, buffer: memoryview) -> None:
        reply = call.reply

        def given(message: Any, payload: Any, sent: Any) -> None:
            sent()
            reply(message, payload, lambda: None)

        class Hasty:
            reply = staticmethod(given)

        answer(self, Hasty, rows, lengths, buffer)  # type: ignore[arg-type]

    put(Reads, "_answer", early)


@plant
def buffers_of_cancelled_reads_are_lost() -> None:
    """I20: a read that is cancelled keeps its buffer for ever."""
    put(Reads, "_return_buffer", lambda self, task, buffer: None)


@plant
def bytes_of_cancelled_calls_are_counted_for_ever() -> None:
    """I20: a connection counts the payload of calls that were cancelled before all of it had come."""
    end = ServerConnection.end

    def forgetful(self: ServerConnection, call: Any) -> None:
        before = self._inflight_bytes
        cancelled = call.task is not None and call.task.cancelled()
        end(self, call)
        if cancelled:
            self._inflight_bytes = before

    put(ServerConnection, "end", forgetful)


@plant
def lock_kept_by_the_cancelled() -> None:
    """A chunk stays locked when a change of it is cancelled."""
    put(ChunkLocks, "hold", _keeping(ChunkLocks.hold))


_KEPT: list[Any] = []


def _keeping(hold: Any) -> Any:
    class Hold:
        def __init__(self, locks: ChunkLocks, chunk: Any, wait_s: float) -> None:
            self.inner = hold(locks, chunk, wait_s)

        async def __aenter__(self) -> Any:
            return await self.inner.__aenter__()

        async def __aexit__(self, kind: Any, *rest: Any) -> Any:
            if kind is asyncio.CancelledError:
                _KEPT.append(self.inner)  # which would let go of the lock when it is collected
                return None
            return await self.inner.__aexit__(kind, *rest)

    return lambda self, chunk, wait_s: Hold(self, chunk, wait_s)


@plant
def change_given_up_is_not_finished() -> None:
    """What a cancelled change has left pending is nobody's."""
    release = Target.end_change

    def forgetful(self: Target, chunk: Any) -> None:
        release(self, chunk)
        self.abandoned.discard(chunk)

    put(Target, "end_change", forgetful)


@plant
def stage_ends_with_its_caller() -> None:
    """A cancelled change leaves its chunk while its bytes are still being written."""

    async def at_once(work: Any) -> Any:
        return await asyncio.shield(asyncio.ensure_future(work))

    put(engine_module, "run_to_completion", at_once)


@plant
def engine_buffer_not_given_back() -> None:
    """I20: verifying a chunk costs a buffer each time that its disk is slow."""
    verify = ChunkEngine.verify

    async def leaking(self: ChunkEngine, version: Any) -> None:
        if version.version % 16 == 0:
            self._buffers.take(4096)
        await verify(self, version)

    put(ChunkEngine, "verify", leaking)
