"""Stores of the managers that were restored from backups: what is raised, and who is asked before they are served."""

from typing import Any

from threefs_manager.service import Manager
from threefs_manager.store import restored_versions
from threefs_manager.store.restore_inquiry import Inquiry
from threefs_storage.chain import kept_version
from threefs_storage.health import unknown_stores
from threefs_storage.unnamed_stores import UnnamedStores

from tests.sim.planted.registry import plant, plant_for, put
from threefs.cluster.kept_routing import KeptRouting
from threefs.ids import ChainId

_INQUIRY = "unit/services/threefs_manager/store/test_restore_inquiry.py"
_VERSIONS = "unit/services/threefs_manager/store/test_restored_versions.py"
_TARGETS = "cluster/services/threefs_storage/test_targets.py"
_UNNAMED = "cluster/services/threefs_storage/test_unnamed_stores.py"
_NODE = "cluster/services/threefs_storage/test_node.py"
_STORES = "sim/test_store_faults.py"
_KEPT = "cluster/services/threefs_storage/chain/test_kept_version.py"
_COPIES = "unit/threefs/cluster/test_kept_routing.py"


@plant
def restored_routing_counts_on() -> None:
    """I5: nodes know a newer version of the routing, and take the restored store for an older copy for ever."""
    put(restored_versions, "raised_routing_version", lambda version, wall_ns: version)


@plant_for(f"{_INQUIRY}::test_all_stores_are_waited_for_and_the_newest_counts")
def first_report_ends_the_inquiry() -> None:
    """I2: chains go on from what one node knows, while another one alone has what was acknowledged since."""

    def check_done(self: Inquiry) -> None:
        if self.newest_chains or not self._awaited:
            self.done.set()

    put(Inquiry, "_check_done", check_done)


@plant_for(f"{_STORES}::test_a_target_that_was_put_out_since_a_backup_does_not_serve_alone_when_it_returns_first")
def reports_of_kept_chains_are_not_used() -> None:
    """I2: all nodes are heard, and chains go on as they are in the backup."""
    take = Inquiry._take

    def forget(self: Inquiry, kept: Any) -> None:
        take(self, kept)
        self.newest_chains.pop(ChainId(kept.chain.chain_id), None)

    put(Inquiry, "_take", forget)


@plant
def leases_are_granted_while_nodes_are_asked() -> None:
    """I2: heartbeats are answered from the chains of the backup, and nobody reports what he keeps."""
    heartbeat = Manager.heartbeat

    async def granting(self: Manager, request: Any) -> Any:
        inquiry, self._inquiry = self._inquiry, None
        try:
            return await heartbeat(self, request)
        finally:
            self._inquiry = inquiry

    put(Manager, "heartbeat", granting)


@plant_for(f"{_VERSIONS}::test_ids_that_may_have_been_given_out_since_the_backup_are_skipped")
def ids_of_targets_are_given_out_again() -> None:
    """A move gives a new target the number of one that has come since the backup: that one's store passes for it."""
    put(restored_versions, "_skip_ids", lambda cluster, known: None)


@plant_for(f"{_UNNAMED}::test_stores_that_the_routing_does_not_name_are_read_for_the_registration")
def unnamed_stores_are_not_read() -> None:
    """I2: a member that has come since the backup is not asked, though it alone has what came last."""

    async def nothing(self: UnnamedStores, own: Any, routing: Any) -> None:
        pass

    put(UnnamedStores, "find", nothing)


@plant_for(f"{_INQUIRY}::test_members_that_came_since_the_backup_report_and_those_that_left_need_not")
def members_that_have_left_are_awaited() -> None:
    """I13: a target that a move has taken out since the backup, and that is deleted, never reports."""
    take = Inquiry._take

    def waiting(self: Inquiry, kept: Any) -> None:
        awaited = set(self._awaited)
        take(self, kept)
        self._awaited |= awaited

    put(Inquiry, "_take", waiting)


@plant_for(f"{_STORES}::test_managers_and_metadata_that_are_restored_twice_from_the_same_moment")
def epochs_are_given_out_again() -> None:
    """I15: manager and metadata are restored twice from backups of before the first time: new files have the numbers of
    those that were made between."""
    put(restored_versions, "epoch_at", lambda wall_ns: 0)
    put(restored_versions, "number_at", lambda wall_ns: 0)


@plant_for(f"{_VERSIONS}::test_the_same_backups_restored_twice_give_no_number_twice")
def numbers_are_given_out_again_within_an_epoch() -> None:
    """I15: the same two backups are restored twice within two minutes, and both times the clock says the same epoch."""
    put(restored_versions, "number_at", lambda wall_ns: 0)


@plant_for(f"{_KEPT}::test_a_new_store_keeps_nothing_while_the_routing_names_another_one")
def new_store_speaks_for_the_deleted_one() -> None:
    """I2: what a restored manager believes itself comes back to it as what a store knows, and it waits for no other."""
    put(kept_version, "_has_other_store", lambda target, engine: False)


@plant_for(f"{_COPIES}::test_a_copy_goes_on_naming_a_target_that_has_a_store_here_and_that_the_routing_lacks")
def copy_forgets_what_a_restored_manager_does_not_know() -> None:
    """I13: a node that starts again while the manager asks has not a word for the target with the last writes."""
    keep = KeptRouting.keep
    put(KeptRouting, "keep", lambda self, routing, held=(): keep(self, routing))


@plant_for(f"{_TARGETS}::test_a_store_that_a_manager_did_not_know_outlives_the_next_one")
def mark_of_an_unknown_store_is_not_looked_at() -> None:
    """After a backup that was too old, the right one makes a node delete what no other one has."""
    put(unknown_stores, "is_marked", lambda engine: False)


@plant_for(f"{_UNNAMED}::test_a_closed_store_is_told_that_its_chain_goes_on_without_it")
def closed_store_is_not_told() -> None:
    """I2: the right backup comes after one that was too old, and its manager asks a store whose chain goes on without
    it, and not the one that has served."""

    async def silent(self: UnnamedStores, routing: Any) -> None:
        pass

    put(UnnamedStores, "tell", silent)


@plant_for(f"{_NODE}::test_a_store_that_was_set_aside_does_not_keep_a_node_with_a_new_target_from_starting")
def disk_with_an_unknown_store_is_taken_for_another_ones() -> None:
    """I13: a node does not start while a move brings it a target, because a store lies there that nobody knows."""
    put(KeptRouting, "is_own", lambda self: False)
