"""Other stores in the place of those of the cluster: refused, and harmless once the right ones are back (I15)."""

import gc
from collections.abc import Iterator

import pytest
from threefs_manager.stale_stores import metadata_store
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_meta.store import identity

from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.wire import manager_pb2 as pb


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def played(scenario: str, chains: int = 4) -> Outcome:
    load = Load(chunks=2, pause_s=0.3, files_pause_s=0.1)
    size = Size(storage=4, clients=2) if chains == 4 else Size(storage=3, targets_per_disk=1, clients=2)
    return run(5, size=size, load=load, scenario=parse(scenario), logs=True)


def well(scenario: str) -> Outcome:
    outcome = played(scenario)
    assert not outcome.violations, outcome.violations
    return outcome


def said(outcome: Outcome, text: str) -> int:
    return sum(text in line for line in outcome.trace)


@pytest.mark.parametrize(("store", "text"), [("meta", "the metadata store is empty"), ("managers", "store is empty")])
def test_an_empty_store_is_refused(store: str, text: str) -> None:
    outcome = well(f"2.0 empty {store} 4.0")
    assert outcome.faults == {"empty": 1} and said(outcome, text)


def test_an_older_metadata_store_is_refused() -> None:
    outcome = well("12.0 aged meta 3.0")  # the manager is told every 5 s how far the store is
    assert outcome.faults == {"aged": 1} and said(outcome, "gives up: the metadata store is an older copy")


def test_an_older_store_of_the_managers_is_refused_however_far_it_counts_by_itself() -> None:
    outcome = well("3.0 kill s1 0.5\n5.0 aged managers 9.0\n14.5 cut s1 c1")
    assert outcome.faults == {"kill": 1, "aged": 1, "cut": 1}
    assert said(outcome, "gives up: the manager's store is an older copy")


def test_a_manager_that_would_serve_from_an_older_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StaleStoreDetector, "check", lambda self, request, **kind: setattr(self, "confirmed", True))
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
