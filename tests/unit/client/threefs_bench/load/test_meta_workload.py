from typing import Any

from threefs_bench.load.job import Job, checked
from threefs_bench.load.meta_workload import NameWindow, names_before


def job(metaop: str, **given: Any) -> Job:
    return checked(
        Job({"name": "a", "ioengine": "meta", "metaop": metaop, **{n: str(value) for n, value in given.items()}}, {})
    )


def test_names_are_divided_among_the_slots() -> None:
    made = job("stat", nrfiles=10, iodepth=4)
    assert [names_before(made, slot) for slot in range(4)] == [3, 3, 2, 2]
    assert names_before(job("create", nrfiles=10), 0) == 0


def test_every_call_finds_its_names() -> None:
    made = job("create/25:stat/25:rename/25:remove/25", nrfiles=10, batch=3)
    names = NameWindow(made, 10, seed=1)
    there = set(range(10))
    seen = set()
    for _ in range(2000):
        call = names.next()
        assert call is not None
        seen.add(call.operation)
        if call.operation == "create":
            assert not there.intersection(call.numbers)
            there.update(call.numbers)
            continue
        assert there.issuperset(call.numbers)
        if call.operation != "stat":
            there.difference_update(call.numbers)
        assert not there.intersection(call.renamed)
        there.update(call.renamed)
    assert seen == {"create", "stat", "rename", "remove"}


def test_removes_end_with_the_last_name() -> None:
    names = NameWindow(job("remove", nrfiles=5, batch=2), 5, seed=1)
    assert [call.numbers for _ in range(3) if (call := names.next()) is not None] == [(0, 1), (2, 3), (4,)]
    assert names.next() is None


def test_a_mix_without_names_creates_some_first() -> None:
    names = NameWindow(job("create/1:remove/99"), 0, seed=1)
    call = names.next()
    assert call is not None and call.operation == "create"


def test_listings_have_no_names_of_their_own() -> None:
    call = NameWindow(job("list"), 0, seed=1).next()
    assert call is not None and (call.operation, call.numbers) == ("list", ())
