"""Damage, old copies and lost results: what storage does where the simplest thing would be wrong."""

import dataclasses
import math
from collections.abc import AsyncIterator
from typing import Any

from threefs_manager.chains import controller as chain_controller
from threefs_manager.chains.resync_progress import ResyncProgress
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.stale_stores.target_stores import StoreGenerations
from threefs_storage.chain import admission, changes, copies, craq, logical_time
from threefs_storage.chain.craq import Craq
from threefs_storage.chain.resync import Resync
from threefs_storage.chain.successor import AheadCall
from threefs_storage.chain.tombstone_collector import TombstoneCollector
from threefs_storage.chain.write_messages import WholeChunk
from threefs_storage.engine.chunk_writer import Written, lost_version
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.exactly_once import NOTHING_FORGOTTEN
from threefs_storage.engine.record_store import RecordStore
from threefs_storage.health import chunk_repair, damaged_stores
from threefs_storage.health.replica_comparison import Comparison
from threefs_storage.target import Target

from tests.sim.planted.registry import plant_for, put
from threefs.cluster.chunk_client import ChunkClient
from threefs.errors import CorruptChunk
from threefs.kv import wal_recovery
from threefs.routing import PublicState

_COLLECTOR = "cluster/services/threefs_storage/chain/test_tombstone_collector.py"
_ONCE = "contract/test_exactly_once.py"
_RESYNC = "cluster/services/threefs_storage/chain/test_resync.py"
_REPAIR = "cluster/services/threefs_storage/health/test_chunk_repair.py"
_SCRUBBER = "cluster/services/threefs_storage/health/test_scrubber.py"


@plant_for(f"{_RESYNC}::test_a_good_copy_that_returns_makes_a_lost_chunk_good_everywhere")
def lost_replace_destroys_the_good_copy() -> None:
    """What its predecessor has lost is lost at a replica that has it."""

    async def stage_lost(self: ChunkEngine, chunk: Any, update: Any, record: Any) -> Any:
        version = lost_version(update)
        changed = dataclasses.replace(record, pending=version, incoming_entries=update.entries)
        await self._make_durable(chunk, record, changed, Written(version))
        return version

    async def no_content(self: copies.Copies, *args: Any) -> None:
        return None

    put(ChunkEngine, "_stage_lost", stage_lost)
    put(copies.Copies, "content", no_content)


@plant_for(f"{_RESYNC}::test_a_lost_chunk_that_is_shipped_leaves_the_good_bytes_that_are_pending_there")
def lost_replace_destroys_good_pending_bytes() -> None:
    """R5: what is pending at a syncing target goes with the word that its predecessor has lost that version."""
    stage_lost = ChunkEngine._stage_lost

    async def forgetful(self: ChunkEngine, chunk: Any, update: Any, record: Any) -> Any:
        return await stage_lost(self, chunk, update, dataclasses.replace(record, pending=None))

    put(ChunkEngine, "_stage_lost", forgetful)


@plant_for(f"{_RESYNC}::test_a_chunk_that_only_the_sole_replica_had_and_has_damaged_is_shipped_as_lost")
def damaged_chunk_holds_up_the_resync() -> None:
    """One chunk that nobody can read keeps a chain from having its replicas."""

    async def ship(self: Resync, target: Any, chunk: Any, chain_version: int) -> bool:
        try:
            await self._craq.send_chunk(target, chunk, chain_version, self._clock.monotonic() + 20.0)
        except CorruptChunk:
            return False
        return True

    put(Resync, "_send", ship)


@plant_for("cluster/services/threefs_storage/chain/test_copies.py::test_only_that_very_content_counts")
def repair_takes_any_version() -> None:
    """I12: a damaged version is made good with the bytes of another one."""
    requested = copies._requested

    def careless(record: Any, chunk: Any, request: Any) -> Any:
        if request.version and record.committed is not None:
            return WholeChunk(chunk, record.committed, (), record.forgotten)
        return requested(record, chunk, request)

    put(copies, "_requested", careless)


@plant_for(f"{_REPAIR}::test_a_pending_version_comes_from_a_syncing_member_that_had_it_pending")
def syncing_drops_pending_at_once() -> None:
    """R5: the only good bytes of a pending version go with the beginning of a resync."""
    learn = Target.apply_chain

    def eager(self: Target, chain: Any) -> None:
        learn(self, chain)
        if self.state is PublicState.SYNCING:
            for chunk in self.engine.pending():
                self.drop_outdated(chunk)

    put(Target, "apply_chain", eager)


@plant_for(f"{_REPAIR}::test_the_middle_and_the_tail_are_damaged_and_the_head_is_good")
def repair_asks_one_neighbour() -> None:
    """Where that one is damaged too, the good copy of a third one is not found, nor salvaged."""
    has = copies.Copies._has

    async def next_one(self: copies.Copies, target: Target, member: Any, *rest: Any) -> Any:
        serving = target.chain.serving
        place = serving.index(target.target_id)
        near = serving[place + 1] if place + 1 < len(serving) else serving[place - 1]
        return await has(self, target, member, *rest) if member == near else False

    others = chunk_repair._others
    put(chunk_repair, "_others", lambda target: others(target)[:1])
    put(copies.Copies, "_has", next_one)

    async def nothing(self: copies.Copies, target: Target, chunk: Any) -> AsyncIterator[bytearray]:
        for content in list[bytearray]():
            yield content

    put(copies.Copies, "other_versions", nothing)


@plant_for(f"{_REPAIR}::test_an_older_copy_has_the_bytes_that_a_change_has_kept")
def older_versions_do_not_help() -> None:
    """A small change to a chunk with a damaged copy loses all that the change has kept."""
    put(chunk_repair, "salvage", lambda *_: None)


@plant_for(
    "cluster/services/threefs_storage/chain/test_craq.py::test_a_damaged_record_that_a_write_meets_is_noted_and_the_write_goes_on"
)
def damage_met_by_a_write_is_not_noted() -> None:
    """A record that only writes meet stays damaged."""

    class Never(Exception):
        pass

    put(craq, "Corrupt", Never)


@plant_for(f"{_REPAIR}::test_a_chunk_that_is_known_to_be_damaged_is_repaired_before_it_is_changed")
def damaged_chunks_are_changed() -> None:
    """I2: a version is made of bytes that are damaged here, and the good ones elsewhere are of no use any more."""
    put(craq, "keeps_bytes", lambda committed, write: False)


@plant_for(f"{_COLLECTOR}::test_half_way_a_new_head_goes_on_from_what_it_knows")
def fresh_is_ignored() -> None:
    """A write that begins a chunk anew is refused where its removal is still known, or is not known any more."""
    forwarded = Craq._from_predecessor

    async def strict(self: Craq, target: Any, chunk: Any, write: Any, *rest: Any) -> Any:
        write.fresh = False
        return await forwarded(self, target, chunk, write, *rest)

    put(Craq, "_from_predecessor", strict)
    put(AheadCall, "begin", lambda self, *_: None)


@plant_for(f"{_COLLECTOR}::test_a_collection_that_came_half_way_holds_up_nothing")
def removals_are_collected_from_the_head() -> None:
    """The head forgets the number of a removal that others still know."""

    async def from_the_head(self: Craq, target: Target, chunk: Any, version: int, deadline: float) -> None:
        successor = target.chain.successor(target.target_id)
        target.engine.forget(chunk)
        self._trace.add(chunk, "collected", version=version)
        if successor is not None:
            await self._successor.collect_tombstone(target, successor, chunk, version, deadline)

    put(Craq, "_collect_tail_first", from_the_head)


@plant_for(f"{_COLLECTOR}::test_versions_do_not_begin_anew")
def versions_begin_anew() -> None:
    """A chunk that was forgotten begins with version 1, which others may have seen."""
    put(Target, "first_version", property(lambda self: 1))


@plant_for(f"{_COLLECTOR}::test_what_is_of_use_is_kept")
def young_removals_are_collected() -> None:
    """A removal is forgotten while a write of before it may be on its way."""

    def old(target: Any, record: Any, version: int) -> bool:
        return record is not None and record.committed is not None and record.committed.removed

    put(craq, "is_collectable", old)


@plant_for(
    "unit/threefs/cluster/test_chunk_client.py::test_a_change_that_is_refused_because_results_are_forgotten_is_made_anew_and_names_its_first_number"
)
def first_seq_not_sent() -> None:
    """I6: a write that is made anew does not say under which number it was sent first."""
    request = ChunkClient._request

    def forgetful(self: ChunkClient, routing: Any, rows: Any) -> Any:
        message = request(self, routing, rows)
        for write in message.writes:
            write.first_seq = 0
        return message

    put(ChunkClient, "_request", forgetful)


@plant_for(f"{_ONCE}::test_r6_where_results_are_forgotten_a_write_is_made_anew_or_unknown")
def forgotten_results_are_not_missed() -> None:
    """I6: a late attempt whose result was forgotten is applied again."""
    put(craq, "may_be_forgotten", lambda forgotten, known_version, now: False)


@plant_for(f"{_ONCE}::test_r6_a_fence_does_not_deny_a_write_whose_result_may_be_dropped")
def fence_denies_what_may_be_applied() -> None:
    """R6: a repeat under an older fence is told that its write was not applied, though its result may be dropped."""
    from_client = Craq._from_client

    async def hasty(self: Craq, target: Target, chunk: Any, write: Any, identity: Any, *rest: Any) -> Any:
        record = target.engine.record(chunk)
        if record is None or record.entry(identity.client, identity.channel) is None:
            admission.check_fence(target, write)
        return await from_client(self, target, chunk, write, identity, *rest)

    put(Craq, "_from_client", hasty)


@plant_for("unit/services/threefs_storage/chain/test_logical_time.py::test_the_time_of_a_suspension_does_not_count")
def suspensions_count_as_logical_time() -> None:
    """A write that was on its way while all were suspended meets a chunk that has forgotten it."""
    put(logical_time, "_SUSPENDED_S", math.inf)


@plant_for(f"{_ONCE}::test_r6_what_is_forgotten_travels_with_a_resync")
def what_is_forgotten_stays_behind() -> None:
    """R6: a chunk travels without the number of the newest result that was forgotten."""
    put(changes, "Forgotten", lambda version, stamp: NOTHING_FORGOTTEN)


@plant_for(
    "unit/services/threefs_manager/chains/test_controller.py::test_a_survivor_whose_disk_is_an_old_copy_does_not_serve_alone"
)
def old_copy_serves_alone() -> None:
    """I15: a disk that was put back as it was some time ago serves alone, without what was acknowledged since."""
    put(StoreGenerations, "staleness", lambda self, report: "")


@plant_for("contract/test_min_replicas.py::test_a_lone_target_takes_no_writes_but_is_read")
def lone_head_acknowledges() -> None:
    """A write is acknowledged on fewer replicas than the minimum."""
    put(admission, "check_min_replicas", lambda target, write: None)


@plant_for(
    "unit/services/threefs_manager/chains/test_controller.py::test_a_resync_that_gets_nothing_done_gives_way_to_another_one"
)
def starving_target_keeps_its_place() -> None:
    """A resync that gets nothing done keeps its chain from having its replicas."""
    put(ResyncProgress, "stalled_target", lambda self, *args: None)


@plant_for(
    "unit/services/threefs_manager/chains/test_controller.py::test_a_resync_that_gets_nothing_done_gives_way_to_another_one"
)
def starving_target_is_put_out_at_once() -> None:
    """R9: a target that has to give way is taken for dead while it holds a lease."""
    withhold_lease = FailureDetector.withhold_lease

    def hasty(self: FailureDetector, chain: Any, target: Any) -> None:
        withhold_lease(self, chain, target)
        if target is not None:
            self.fence([target])

    put(FailureDetector, "withhold_lease", hasty)


@plant_for("contract/test_log_power_cuts.py::test_any_subset_of_unsynced_pages_recovers_to_a_prefix")
def gap_in_a_log_is_stepped_over() -> None:
    """A change survives a power cut without the one before it."""
    put(wal_recovery, "odd_header", lambda content: None)


@plant_for(f"{_COLLECTOR}::test_an_old_removal_is_forgotten_by_all")
def removals_are_never_collected() -> None:
    """I20: each chunk that was ever removed takes a record for ever."""

    async def nothing(self: TombstoneCollector, target: Target) -> int:
        return 0

    put(TombstoneCollector, "collect_page", nothing)


@plant_for(f"{_SCRUBBER}::test_a_target_that_is_behind_its_neighbours_leaves_and_is_made_equal[2]")
def replicas_are_not_compared() -> None:
    """I4: a target that has lost a write of its disk goes on serving."""

    async def nothing(self: Comparison, *args: Any) -> list[Any]:
        return []

    put(Comparison, "find_divergent", nothing)


@plant_for(f"{_SCRUBBER}::test_it_goes_on_where_the_last_process_stopped")
def scrubber_begins_anew_with_each_process() -> None:
    """What lies at the end is never looked at where processes do not live for a whole pass."""
    note = RecordStore.note
    put(RecordStore, "note", lambda self, name: None if name == "scrub" else note(self, name))


@plant_for(
    "cluster/services/threefs_storage/health/test_quarantine.py::test_the_only_one_that_may_have_it_is_left_alone"
)
def only_copy_goes_to_quarantine() -> None:
    """R7: a store that cannot be opened gives way to an empty one, though nobody else has what it has."""
    put(damaged_stores, "has_other_copy", lambda chain, target: True)


@plant_for("unit/services/threefs_manager/chains/test_controller.py::test_an_accepted_loss_brings_a_chain_back")
def accepted_loss_changes_nothing() -> None:
    """A chain whose last disks are lost for good is never served again."""
    put(chain_controller, "accept_loss", lambda chain, chosen, observed, alive: chain)
