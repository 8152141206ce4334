import asyncio

import pytest

from tests.harness.clocks import SteppedClock
from threefs.errors import Conflict, MaybeCommitted
from threefs.kv.memory import MemoryEngine, VersionedTable


class Scripted:
    """Randomness that is given number by number."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)

    def uniform(self, low: float, high: float) -> float:
        assert (low, high) == (0.0, 1.0)
        return self._numbers.pop(0)

    def below(self, bound: int) -> int:
        raise AssertionError

    def token(self, size_bytes: int) -> bytes:
        raise AssertionError


async def attempt_and_look(engine: MemoryEngine, error: type[Exception]) -> bytes | None:
    tx = engine.begin()
    tx.set(b"a", b"1")
    with pytest.raises(error):
        await tx.commit()
    return await engine.begin().get(b"a")


def test_injected_conflicts_change_nothing() -> None:
    engine = MemoryEngine(random=Scripted(0.1), conflict_rate=0.2)
    assert asyncio.run(attempt_and_look(engine, Conflict)) is None


@pytest.mark.parametrize(("coin", "found"), [(0.4, b"1"), (0.6, None)])
def test_an_unknown_commit_was_applied_or_not(coin: float, found: bytes | None) -> None:
    engine = MemoryEngine(random=Scripted(0.1, coin), unknown_rate=0.2)
    assert asyncio.run(attempt_and_look(engine, MaybeCommitted)) == found


async def test_rates_leave_the_other_commits_alone() -> None:
    engine = MemoryEngine(random=Scripted(0.3, 0.3), conflict_rate=0.2, unknown_rate=0.2)
    tx = engine.begin()
    tx.set(b"a", b"1")
    await tx.commit()
    await engine.begin().commit()  # a transaction without writes draws nothing


async def test_old_versions_and_removed_keys_are_forgotten() -> None:
    clock = SteppedClock()
    engine = MemoryEngine(clock=clock)
    for number in range(200):
        tx = engine.begin()
        tx.set(b"a", b"%d" % number)
        tx.clear(b"%d" % number)
        await tx.commit()
        clock.advance(1.0)
    assert len(engine._table) < 20
    assert await engine.begin().get(b"a") == b"199"


def test_a_table_keeps_what_a_reader_of_the_given_version_needs() -> None:
    table = VersionedTable()
    for version, value in [(1, b"1"), (3, b"3"), (5, None), (7, b"7")]:
        table.put(b"a", version, value)
    table.forget_before(b"a", 4)
    assert [table.get(b"a", version) for version in (4, 5, 6, 7)] == [b"3", None, None, b"7"]
    table.forget_before(b"a", 5)
    table.forget_before(b"b", 5)
    assert [table.get(b"a", version) for version in (5, 7)] == [None, b"7"]
    table.put(b"a", 9, None)
    table.forget_before(b"a", 9)
    assert len(table) == 0
