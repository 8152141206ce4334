import dataclasses

import pytest
from threefs_cli import plan_change
from threefs_cli.cluster_file import Plan

from threefs.errors import InvalidArgument

SHARED = Plan(replicas=2, managers=2, metas=2, engine="etcd")


def test_fewer_storage_processes_bring_fewer_replicas() -> None:
    assert plan_change.requested(None) is None
    assert plan_change.requested(None, storage=1) == Plan(1, 1)
    assert plan_change.requested(None, storage=5) == Plan(5, 3)
    assert plan_change.requested(None, replicas=2) == Plan(3, 2)
    assert plan_change.requested(Plan(5, 2), storage=6) == Plan(6, 2)


def test_a_write_needs_no_more_copies_than_there_are() -> None:
    for known, options in (
        (None, {"min_replicas": 5}),
        (None, {"storage": 1, "min_replicas": 2}),
        (Plan(3, 3, 3), {"replicas": 2}),
    ):
        with pytest.raises(InvalidArgument, match="a write cannot need"):
            plan_change.requested(known, **options)  # type: ignore[arg-type]
    assert plan_change.requested(None, min_replicas=3) == Plan(3, 3, 3)
    kept = Plan(2, 2, 3)  # of a cluster that has been shrunk
    assert plan_change.requested(kept, storage=3) == Plan(3, 2, 3)


def test_options_that_are_missing_keep_what_the_cluster_has() -> None:
    assert plan_change.requested(SHARED, metas=3) == dataclasses.replace(SHARED, metas=3)
    assert plan_change.requested(None, managers=3, engine="etcd") == Plan(managers=3, engine="etcd")


@pytest.mark.parametrize("several", [{"managers": 3}, {"metas": 2}])
def test_several_services_on_the_embedded_engine(several: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=r"this cluster has the embedded engine.*make one with --dir, or move"):
        plan_change.requested(Plan(), **several)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="add `--engine etcd`"):
        plan_change.requested(None, **several)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "runs"),
    [
        ({"storage": 5}, True),
        ({"metas": 3}, True),
        ({"storage": 5, "metas": 3}, True),
        ({"managers": 3}, False),
        ({"managers": 3, "metas": 3, "storage": 4}, False),
    ],
)
def test_what_may_be_added(change: dict[str, int], runs: bool) -> None:
    plan_change.check(SHARED, dataclasses.replace(SHARED, **change), runs=runs, where="/d")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"managers": 3}, "`threefs down`, then `threefs up --managers 3`"),
        ({"managers": 1}, "2 managers and 2 meta services, and `threefs up` only adds"),
        ({"metas": 1}, "only adds some"),
        ({"engine": "postgresql"}, "in the engine etcd; `threefs meta dump`"),
        ({"min_replicas": 3}, "`threefs chain min-replicas 3`"),
        ({"replicas": 3}, r"3 storage processes and 2 replicas.*`threefs table set-replicas 1 COPIES`"),
        ({"storage": 2}, "`threefs node drain` empties one"),
    ],
)
def test_what_is_refused_says_what_is_possible(change: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        plan_change.check(SHARED, dataclasses.replace(SHARED, **change), runs=True, where="/d")  # type: ignore[arg-type]
