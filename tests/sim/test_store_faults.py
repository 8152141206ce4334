"""Other stores in the place of those of the cluster: refused, and harmless once the right ones are back (I15)."""

from dataclasses import replace

import pytest
from threefs_manager.stale_stores import metadata_store
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store import restored_versions
from threefs_meta.store import identity
from threefs_meta.store.identity import StoreIdentity

from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.wire import manager_pb2 as pb

TWICE = "6.0 restored meta 1.0\n11.0 restored both 1.0\n16.0 cut s1 c1"


def played(scenario: str, chains: int = 4, spares: int = 0, managers: int = 2) -> Outcome:
    load = Load(chunks=2, pause_s=0.3, files_pause_s=0.1, restores=True)
    size = Size(storage=4, clients=2) if chains == 4 else Size(storage=3, targets_per_disk=1, clients=2)
    size = replace(size, spares=spares, managers=managers)
    return run(5, size=size, load=load, scenario=parse(scenario), logs=True)


def well(scenario: str, chains: int = 4, spares: int = 0, managers: int = 2) -> Outcome:
    outcome = played(scenario, chains, spares, managers)
    assert not outcome.violations, outcome.violations
    return outcome


def said(outcome: Outcome, text: str) -> int:
    return sum(text in line for line in outcome.trace)


@pytest.mark.parametrize(("store", "text"), [("meta", "the metadata store is empty"), ("managers", "store is empty")])
def test_an_empty_store_is_refused(store: str, text: str) -> None:
    outcome = well(f"2.0 empty {store} 4.0")
    assert outcome.faults == {"empty": 1} and said(outcome, text)


def test_an_empty_store_is_taken_where_the_cluster_has_none_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = StoreIdentity.admit

    async def admit_late(self: StoreIdentity) -> None:
        await self._clock.sleep(4.0)
        await admit(self)

    monkeypatch.setattr(StoreIdentity, "admit", admit_late)
    assert well("1.0 empty meta 5.0").faults == {}


def test_an_older_metadata_store_is_refused() -> None:
    outcome = well("12.0 aged meta 3.0")  # the manager is told every 5 s how far the store is
    assert outcome.faults == {"aged": 1} and said(outcome, "gives up: the metadata store is an older copy")


def test_an_older_store_of_the_managers_is_refused_however_far_it_counts_by_itself() -> None:
    outcome = well("3.0 kill s1 0.5\n5.0 aged managers 9.0\n14.5 cut s1 c1")
    assert outcome.faults == {"kill": 1, "aged": 1, "cut": 1}
    assert said(outcome, "gives up: the manager's store is an older copy")


def test_storage_that_starts_by_an_older_store_of_the_managers_hears_the_newest() -> None:
    """It makes the stores of targets that moves have taken away since, and the managers that come back know none of
    them."""
    slow_disks = "\n".join(f"9.4 drag s{n} 2.0" for n in (1, 2, 3, 4))  # the managers are refused in the meantime
    outcome = well(
        f"5.0 copies x2\n8.0 aged managers 2.9\n8.4 power m1 0.3\n8.5 blackout 1.2\n{slow_disks}\n14.5 cut s1 c1",
        managers=1,
    )
    assert outcome.faults == {"copies": 1, "aged": 1, "power": 1, "blackout": 1, "drag": 4, "cut": 1}
    assert said(outcome, "is kept on the disk, closed")


def test_a_manager_that_would_serve_from_an_older_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaleStoreDetector, "check", lambda self, request, **kind: None)
    monkeypatch.setattr(StaleStoreDetector, "check_chains", lambda self, routing, request: None)
    monkeypatch.setattr(StaleStoreDetector, "confirmed", True)
    outcome = played("3.0 kill s1 0.5\n5.0 aged managers 9.0\n14.5 cut s1 c1")
    assert any("from a manager whose store is not the newest" in violation for violation in outcome.violations)


def test_a_meta_service_that_would_serve_from_any_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_store(known: pb.MetadataStore, cluster_id: str, request: pb.AdmitStoreRequest) -> pb.MetadataStore:
        return pb.MetadataStore(store_id=request.store_id, epoch=request.epoch, generation=request.generation)

    monkeypatch.setattr(metadata_store, "check_store", check_store)
    outcome = played("12.0 aged meta 3.0")
    assert any("serves from a metadata store that is not" in violation for violation in outcome.violations)


def test_inode_numbers_that_a_restore_gives_out_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "EPOCH_BITS", 0)
    # t1 takes new ones after the backup.
    outcome = played("4.5 kill t1 0.3\n8.0 restored meta 2.0\n12.0 cut s1 c1", chains=1)
    assert any("I11" in violation for violation in outcome.violations)


def test_a_metadata_store_that_only_a_backup_is_left_of() -> None:
    outcome = well("6.0 restored meta 2.0\n10.0 cut s1 c1")
    assert outcome.faults == {"restored": 1, "cut": 1} and said(outcome, "serving from a restored store")


def test_a_store_that_is_not_older_for_anybody_is_left_alone() -> None:
    assert well("4.0 aged managers 2.0").faults == {}


def test_a_copy_of_a_restored_store_that_no_service_has_served_from_is_one_more_restore() -> None:
    """It was copied at half the time, while the managers had not taken over yet."""
    outcome = well("3.0 restored both 0.6\n7.4 aged meta 1.0\n12.0 cut s1 c1")
    assert outcome.faults == {"restored": 1, "cut": 1} and said(outcome, "serving from a restored store")


@pytest.mark.parametrize("what", ["restored", "torn"])
def test_chains_that_have_changed_since_a_backup_go_on_from_what_their_targets_keep(what: str) -> None:
    """s1 was put out since the backup, and starts when the managers' store is restored."""
    outcome = well(f"6.0 kill s1 4.5\n10.0 {what} managers 1.0\n15.0 cut s1 c1")
    assert outcome.faults == {"kill": 1, what: 1, "cut": 1} and said(outcome, "serving from a restored store")
    refused = "store is empty" if what == "restored" else "only in part"
    assert said(outcome, refused)


def test_a_target_that_was_put_out_since_a_backup_does_not_serve_alone_when_it_returns_first() -> None:
    """The others, which have what was acknowledged since, start after s1."""
    others = "\n".join(f"10.1 kill {host} 1.6" for host in ("s2", "s3", "s4"))
    outcome = well(f"6.0 kill s1 4.5\n10.0 restored managers 1.0\n{others}\n15.0 cut s1 c1")
    assert outcome.faults == {"kill": 4, "restored": 1, "cut": 1} and said(outcome, "serving from a restored store")


def test_members_that_have_joined_since_a_backup_are_heard() -> None:
    outcome = well("7.0 join s4\n8.0 drain s1 30.0\n13.0 restored managers 1.0\n18.0 cut s1 c1", chains=1, spares=1)
    assert outcome.faults == {"join": 1, "drain": 1, "restored": 1, "cut": 1}
    assert said(outcome, "serving from a restored store")


def test_managers_and_metadata_that_are_restored_twice_from_the_same_moment() -> None:
    """The second backup is older than the first restore: it knows nothing of the numbers that were given out since."""
    outcome = well(TWICE, chains=1)
    assert outcome.faults == {"restored": 2, "cut": 1}


@pytest.mark.parametrize("counts_on", [True, False])
def test_restores_of_both_that_get_the_same_epoch_from_the_clock(
    monkeypatch: pytest.MonkeyPatch, counts_on: bool
) -> None:
    """The wall clocks of the simulator run so fast that each restore would get another one."""
    monkeypatch.setattr(restored_versions, "_EPOCH_S", 1 << 20)
    if not counts_on:
        monkeypatch.setattr(restored_versions, "number_at", lambda wall_ns: 0)
    outcome = played("6.0 restored both 1.0\n11.0 restored both 1.0\n16.0 cut s1 c1", chains=1)
    assert outcome.faults == {"restored": 2, "cut": 1}
    assert bool(outcome.violations) is not counts_on, outcome.violations


def test_numbers_that_the_same_backups_give_out_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored_versions, "epoch_at", lambda wall_ns: 0)
    monkeypatch.setattr(restored_versions, "number_at", lambda wall_ns: 0)
    outcome = played(TWICE, chains=1)
    assert outcome.violations, "numbers of inodes or of leases mean two things"
