"""Stores of metadata: who they are, what a cut, a sweep or a fence must do before something else happens."""

import asyncio
import dataclasses
from typing import Any

from threefs_manager.stale_stores import metadata_store
from threefs_meta import garbage_collector
from threefs_meta.context import CHUNKS_TIMEOUT_S
from threefs_meta.file import layout_policy, length, truncation
from threefs_meta.file.length import LengthReport
from threefs_meta.file.truncation import Truncation
from threefs_meta.garbage_collector import GarbageCollector
from threefs_meta.lease import lease_reaper, leases
from threefs_meta.locks import fencing
from threefs_meta.ops import reserve_append as reserve_module
from threefs_meta.ops import sync as sync_module
from threefs_meta.store import identity
from threefs_meta.store.namespace import Namespace
from threefs_storage.chain.craq import Craq

from tests.sim.planted.registry import plant, plant_for, put
from threefs.errors import ThreefsError
from threefs.kv import restore_mark
from threefs.kv.recovering_engine import RecoveringEngine
from threefs.wire.records_pb2 import RestoreMark

_IDENTITY = "unit/services/threefs_meta/store/test_identity.py"
_LEASE_REAPER = "unit/services/threefs_meta/lease/test_lease_reaper.py"
_FENCING = "unit/services/threefs_meta/locks/test_fencing.py"
_FENCES = "contract/test_fences.py"
_COLLECTOR = "unit/services/threefs_meta/test_garbage_collector.py"


@plant_for(f"{_IDENTITY}::test_an_empty_store_of_a_cluster_that_has_metadata_is_refused_and_left_empty")
def empty_store_is_served() -> None:
    """I15: a disk that is not mounted is taken for a new cluster."""
    check_store = metadata_store.check_store

    def lax(known: Any, cluster_id: str, request: Any) -> Any:
        if not request.store_id or request.store_id != known.store_id:
            known = type(known)()
        return check_store(known, cluster_id, request)

    put(metadata_store, "check_store", lax)


@plant_for(f"{_IDENTITY}::test_an_older_copy_is_refused_and_the_newest_one_is_not")
def older_store_is_served() -> None:
    """I15: an older copy of the store takes the place of the newest one."""
    check_store = metadata_store.check_store

    def lax(known: Any, cluster_id: str, request: Any) -> Any:
        same = type(known)(store_id=known.store_id)
        return check_store(same, cluster_id, request)

    put(metadata_store, "check_store", lax)


@plant_for(f"{_IDENTITY}::test_no_restore_ever_gives_out_an_inode_number_again")
def epoch_is_not_raised_by_a_restore() -> None:
    """I15: files that a backup does not know share their numbers, and so their chunks, with those that come."""
    put(identity, "EPOCH_BITS", 0)


@plant_for(
    "unit/threefs/kv/test_restore_mark.py::test_a_store_that_was_loaded_in_part_is_refused_until_the_rest_is_there"
)
def half_a_backup_is_served() -> None:
    """I15: a restore that was interrupted looks like one that was not."""

    async def read_mark(tx: Any) -> RestoreMark | None:
        return None

    put(restore_mark, "read_mark", read_mark)


@plant_for(
    "unit/services/threefs_meta/file/test_truncation.py"
    "::test_an_append_whose_place_is_cut_off_does_not_arrive_afterwards"
)
def appends_are_not_fenced_off() -> None:
    """An append that is under way arrives behind the truncate that has given its place to others."""
    put(Truncation, "_appends_cut", lambda self, record: b"")


@plant_for(
    "unit/services/threefs_meta/ops/test_reserve_append.py::test_a_report_of_before_a_truncate_ends_no_later_append"
)
def a_report_ends_appends_by_their_end_alone() -> None:
    """A report of before a truncate ends a later append: readers see zeros in place of its bytes."""
    finish_appends = length.finish_appends

    def by_end(inode: Any, session: bytes, last: tuple[int, int]) -> bool:
        return finish_appends(inode, session, (inode.truncate_version, last[1]))

    put(sync_module, "finish_appends", by_end)


@plant_for(
    "unit/services/threefs_meta/file/test_truncation.py::test_readers_learn_of_a_truncate_of_bytes_that_they_can_see"
)
def cut_sets_no_mark() -> None:
    """Readers see zeros in place of bytes that are about to go."""
    put(Truncation, "_with_mark", lambda self, record: record)


@plant_for(
    "unit/services/threefs_meta/file/test_length.py::test_a_service_that_hung_removes_nothing_that_was_written_since"
)
def cut_removes_what_came_later() -> None:
    """A service that hung cuts off what was written since."""
    cuts = truncation._truncations

    def any_version(*args: Any) -> Any:
        return [dataclasses.replace(update, only_version=0) for update in cuts(*args)]

    put(truncation, "_truncations", any_version)


@plant_for(
    "unit/services/threefs_meta/ops/test_reserve_append.py"
    "::test_what_others_append_behind_shows_that_the_bytes_before_are_still_to_come"
)
def appended_bytes_are_seen_before_they_are_there() -> None:
    """Who follows an append sees zeros in place of bytes that are still to come."""
    reserve_append = length.reserve_append

    def hasty(inode: Any, session: bytes, length: int) -> int:
        offset = reserve_append(inode, session, length)
        inode.length = inode.append_end
        del inode.appends[:]
        return offset

    put(reserve_module, "reserve_append", hasty)


@plant_for(f"{_LEASE_REAPER}::test_a_file_that_a_dead_client_had_open_for_writing_counts_as_changed")
def forced_end_is_no_change() -> None:
    """I17: a session that ends with its client leaves the change counter, whatever it has written."""

    def report(**more: Any) -> LengthReport:
        return LengthReport(**(more | {"written": False}))

    put(lease_reaper, "LengthReport", report)


@plant_for(
    "unit/services/threefs_meta/store/test_namespace.py::test_whatever_a_reader_could_see_raises_the_change_of_a_file_by_one"
)
def changes_are_not_counted() -> None:
    """I17: readers go on with what they keep of a file that has changed."""
    put(Namespace, "put_inode", Namespace.put_inode_unseen)


@plant_for(f"{_LEASE_REAPER}::test_what_the_client_holds_anew_under_the_same_key_stays")
def lease_reaper_does_not_look_again() -> None:
    """What a client holds anew goes with what it held before."""

    def blind(release: Any) -> Any:
        async def anything(context: Any, key: bytes, ended: Any) -> None:
            await release(context, key, lambda value: value is not None)

        return anything

    kinds = tuple(dataclasses.replace(kind, release=blind(kind.release)) for kind in lease_reaper.LEASED_KINDS)
    put(lease_reaper, "LEASED_KINDS", kinds)


@plant_for(f"{_LEASE_REAPER}::test_a_damaged_record_does_not_delay_other_clients")
def damaged_record_stops_the_lease_reaper() -> None:
    """One record that cannot be read holds up all that clients have left behind."""

    class Never(Exception):
        pass

    put(lease_reaper, "Corrupt", Never)


@plant_for(f"{_COLLECTOR}::test_damaged_entries_of_a_removed_directory_hold_up_nothing[False]")
def damaged_record_stops_the_collector() -> None:
    """One record that cannot be read holds up all that was removed."""

    class Never(Exception):
        pass

    put(garbage_collector, "Corrupt", Never)


@plant_for(f"{_COLLECTOR}::test_chains_without_a_serving_target_delay_no_other_file")
def chains_without_replicas_hold_up_the_collector() -> None:
    """Files on a dead chain are waited for, one after the other, before others are freed."""
    put(GarbageCollector, "_patience_s", lambda self, chain: CHUNKS_TIMEOUT_S)


@plant_for("unit/services/threefs_meta/ops/test_renew_lease.py::test_a_request_that_comes_late_changes_nothing")
def late_renewal_counts() -> None:
    """A renewal that was overtaken says what is held."""

    async def none(tx: Any, client: bytes) -> int:
        return 0

    put(leases, "last_renewal_number", none)


@plant
def lock_goes_without_a_fence() -> None:
    """I18: a lock is given to the next one while the last one may still write."""

    async def nothing(context: Any, inode: Any) -> None:
        return

    put(fencing, "raise_on_chains", nothing)


@plant_for(f"{_FENCING}::test_the_lock_stays_while_a_chain_does_not_answer")
def lock_goes_before_all_chains_have_its_fence() -> None:
    """I18: a chain that does not answer does not hold up the next one."""
    raise_on_chains = fencing.raise_on_chains

    async def some(context: Any, inode: Any) -> None:
        try:
            await raise_on_chains(context, inode)
        except ThreefsError:
            return

    put(fencing, "raise_on_chains", some)
    put(layout_policy, "is_served", lambda *args: True)


@plant
def fence_is_ignored() -> None:
    """I18: the head takes writes of those who have lost their lock."""
    from_client = Craq._from_client

    async def careless(self: Craq, target: Any, chunk: Any, write: Any, *rest: Any) -> Any:
        write.fence = 0
        return await from_client(self, target, chunk, write, *rest)

    put(Craq, "_from_client", careless)


@plant_for(f"{_FENCES}::test_a_write_that_was_given_up_ends_before_the_fence_stands")
def fence_stands_before_others_have_ended() -> None:
    """I18: what was admitted before a fence may be stored after it was answered."""
    put(Craq, "_raise_fence", Craq._write)


@plant_for("unit/threefs/kv/test_recovering_engine.py::test_after_an_error_of_the_system_it_works_again")
def failed_store_stays_failed() -> None:
    """I19: a store that has failed once is never opened again, and its process lives on."""

    async def never(self: RecoveringEngine) -> None:
        await asyncio.Event().wait()

    put(RecoveringEngine, "_watch", never)
