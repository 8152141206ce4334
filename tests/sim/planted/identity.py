"""Stores that are not that of the cluster are taken for it (I15), and clients who lost something do not know (I18)."""

import math
from typing import Any

from threefs_client.metadata.lease import Lease
from threefs_client.metadata.locks import LockOwner
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_meta.store import identity
from threefs_storage.engine import generation
from threefs_storage.engine.record_store import RecordStore
from threefs_storage.targets import Targets

from tests.sim.planted.registry import plant, plant_for, put
from threefs.cluster.registration import Registration
from threefs.errors import NotAuthorised
from threefs.kv.engine_api import Transaction
from threefs.kv.rocks import RocksEngine
from threefs.rpc import handshake
from threefs.rpc.connection_pool import ConnectionPool

_STORES = "sim/test_store_faults.py"
_IDENTITIES = "unit/services/threefs_meta/store/test_identity.py"
_DOZES = "sim/test_lock_holders_asleep.py"


@plant_for(f"{_STORES}::test_an_older_store_of_the_managers_is_refused_however_far_it_counts_by_itself")
def older_copy_of_the_managers_store_is_served() -> None:
    """I15: nodes that know better are not believed."""
    put(StaleStoreDetector, "check", lambda self, request, **kind: None)
    put(StaleStoreDetector, "check_chains", lambda self, routing, request: None)
    put(StaleStoreDetector, "confirmed", True)


@plant
def own_writes_bring_an_older_copy_up_to_date() -> None:
    """I15: the process of an older copy of a disk writes notes, until the copy counts as the newest disk."""
    put(RecordStore, "generation", property(lambda self: self._table.durable_change))


@plant_for(
    "unit/services/threefs_storage/engine/test_generation.py"
    "::test_a_store_is_never_older_than_what_an_earlier_release_has_reported_of_it"
)
def changes_of_an_earlier_release_are_overlooked() -> None:
    """The newest disk is taken for an older copy after the way back to an earlier release."""
    put(generation, "crc32c", lambda data: 0)


@plant_for(f"{_IDENTITIES}::test_a_copy_from_before_the_last_inode_number_is_refused_however_young_it_is")
def inode_numbers_are_used_before_they_are_reported() -> None:
    """I15: a copy of the metadata that is some seconds old gives the numbers out again."""

    async def silent(self: identity.StoreIdentity) -> None:
        pass

    put(identity.StoreIdentity, "report_inode_numbers", silent)


@plant_for(f"{_IDENTITIES}::test_a_copy_of_an_embedded_store_that_lacks_a_reported_change_is_refused")
def changes_of_the_metadata_are_not_reported() -> None:
    """I15: a copy of the metadata that lacks the last seconds serves, without the names and locks of these seconds."""
    put(RocksEngine, "durable_change", 0)


@plant_for(f"{_IDENTITIES}::test_a_start_gives_out_no_number_of_a_lease_that_the_copy_may_lack")
def leases_go_on_where_a_copy_stopped() -> None:
    """I18: a client that has lost its locks with the last seconds of the metadata finds its number again."""
    put(identity, "_SKIPPED_LEASES", 0)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py::test_a_manager_with_an_older_copy_of_its_store_grants_nothing"
)
def older_copy_of_the_managers_store_changes_chains() -> None:
    """I15: it refuses nodes, and counts up to what they have seen."""
    put(StaleStoreDetector, "check_fresh", lambda self: None)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py::test_one_that_was_away_says_nothing_of_the_age_of_the_store"
)
def one_storage_process_confirms_the_managers_store() -> None:
    """I15: it was away while a newer store was in use. Chains are changed for it before another has said so."""
    put(StaleStoreDetector, "confirmed", property(lambda self: self._is_known))


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py"
    "::test_time_in_which_nobody_could_be_heard_does_not_count"
)
def a_suspended_manager_has_waited_for_reports() -> None:
    """I15: T has passed, and it could hear nobody in it."""
    put(StaleStoreDetector, "on_suspension", lambda self, suspended_s: None)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py"
    "::test_what_an_administrator_changes_waits_until_all_that_serve_were_heard"
)
def a_copy_of_the_managers_store_takes_changes() -> None:
    """I15: what an administrator changes in it is lost with it."""

    async def at_once(self: StaleStoreDetector) -> None:
        pass

    put(StaleStoreDetector, "wait_heard", at_once)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py"
    "::test_a_lease_that_has_lapsed_is_renewed_only_after_those_that_would_know_were_heard"
)
def a_copy_of_the_managers_store_renews_leases() -> None:
    """I5, I15: a target that was away serves what its chain has changed since."""
    put(StaleStoreDetector, "renewable", lambda self, leased, request: leased)


@plant_for(
    "cluster/services/threefs_storage/test_targets.py"
    "::test_a_target_says_that_its_lease_has_lapsed_when_its_chain_may_have_gone_on_without_it"
)
def answers_to_old_heartbeats_renew_lapsed_leases() -> None:
    """I5, I15: a manager with an older store was told that the lease had not lapsed, and it has since."""
    grant = Targets.open_grant

    def open_grant(self: Targets) -> Any:
        known = {target: target.in_chain_until for target in self}
        for target in self:
            target.in_chain_until = -math.inf
        granted = grant(self)
        for target, until in known.items():
            target.in_chain_until = until
        return granted

    put(Targets, "open_grant", open_grant)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py"
    "::test_nobody_registers_before_all_that_serve_were_heard"
)
def registrations_count_up_a_copy_of_the_managers_store() -> None:
    """I15: the next term takes the copy for the newest store."""
    put(StaleStoreDetector, "check_heard", lambda self: None)


@plant_for(
    "unit/threefs/rpc/test_connection_pool.py"
    "::test_what_a_stranger_says_at_the_port_of_a_dead_service_is_no_answer[key-not-found]"
)
def strangers_answer_calls() -> None:
    """I21: who has proven nothing is believed that a file is gone."""
    is_a_stranger = ConnectionPool._is_a_stranger

    def credulous(self: ConnectionPool, error: Any) -> bool:
        return isinstance(error, NotAuthorised) and is_a_stranger(self, error)

    put(ConnectionPool, "_is_a_stranger", credulous)


@plant_for(
    "unit/threefs/cluster/test_registration.py"
    "::test_a_process_that_registers_again_says_where_it_belongs_from_its_first_start_on"
)
def who_registers_again_names_no_cluster() -> None:
    """I15: what it has seen is not compared with the manager's store."""
    register = Registration._register

    async def nameless(self: Registration) -> Any:
        self._request.cluster_id = ""
        return await register(self)

    put(Registration, "_register", nameless)


@plant_for(
    "unit/services/threefs_manager/stale_stores/test_manager_store.py"
    "::test_a_meta_service_that_is_new_says_nothing_of_the_age_of_the_store"
)
def who_knows_nothing_confirms_the_managers_store() -> None:
    """I15: chains are changed before anybody was heard who would know better."""
    check = StaleStoreDetector.check

    def credulous(self: StaleStoreDetector, request: Any, **kind: Any) -> None:
        check(self, request, keeps_chains=True)

    put(StaleStoreDetector, "check", credulous)


@plant_for("unit/threefs/rpc/test_connection_pool.py::test_a_process_on_the_port_of_a_service_is_not_taken_for_it[]")
def impostors_end_calls() -> None:
    """Whoever takes the port of a dead service is believed to say that the key is wrong."""
    put(ConnectionPool, "_is_a_stranger", lambda self, error: False)


@plant_for("unit/client/threefs_client/metadata/test_lease.py::test_after_a_silence_it_asks_before_anything_is_written")
def operations_have_no_patience_for_their_lease() -> None:
    """After a long sleep an operation fails when the first answer does not come at once."""
    report = Lease._renew_all

    async def hasty(self: Lease, deadline: float = 0.0) -> None:
        await report(self)

    put(Lease, "_renew_all", hasty)


@plant_for(
    "unit/client/threefs_client/metadata/test_lease.py"
    "::test_operations_that_wait_for_the_same_answer_fail_in_the_time_of_each"
)
def operations_wait_for_their_lease_one_after_the_other() -> None:
    """I13: the last of many operations fails after the patience of all before it."""
    put(Lease, "_check_time", lambda self, deadline: None)


@plant_for(
    "unit/services/threefs_meta/store/test_identity.py::test_no_lease_outlasts_a_restore_and_no_number_comes_again"
)
def leases_of_a_backup_go_on() -> None:
    """I18: who has got a lock since the backup does not hear that it has none."""

    async def none(after: bytes, tx: Transaction) -> None:
        return None

    put(identity, "_end_leases", none)


@plant_for(f"{_DOZES}::test_a_lock_that_was_slept_away_is_lost_and_the_others_go_on[1]")
def fences_are_forgotten() -> None:
    """I18: bytes that come late, under a lock that was taken away, are stored."""
    put(RecordStore, "_update_fence", lambda self, inode, record: None)
    put(LockOwner, "is_lost", False)


@plant_for("sim/test_intruders.py::test_no_peer_is_let_in_without_the_key_or_trusted")
def proofs_are_not_looked_at() -> None:
    """I21: whoever has any key is believed."""
    put(handshake, "_is_proven", lambda *anything: True)
