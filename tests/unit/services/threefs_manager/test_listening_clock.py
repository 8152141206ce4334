"""Time stands for those who judge silence while this manager refuses heartbeats."""

import pytest
from threefs_manager.election import Election, Epoch
from threefs_manager.listening_clock import ListeningClock

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs.kv.memory import MemoryEngine

LENGTH_S = 1.0


async def started(*, exclusive: bool = False) -> tuple[SteppedClock, Election, Epoch, ListeningClock, float]:
    clock = SteppedClock()
    election = Election(
        MemoryEngine(), "one", length_s=LENGTH_S, exclusive=exclusive, clock=clock, random=SeededRandom(1)
    )
    epoch = await election.campaign()
    listening = ListeningClock(clock, epoch)
    return clock, election, epoch, listening, listening.monotonic()


async def test_it_stands_while_the_lease_is_not_renewed_in_time_and_goes_on_where_it_stood() -> None:
    clock, election, epoch, listening, start = await started()
    heard = 0.0
    for _ in range(3):
        for step_s, heard_s in ((0.2, 0.2), (0.2, 0.2), (5.0, 0.1), (0.4, 0.0)):
            heard += heard_s
            clock.advance(step_s)
            assert listening.monotonic() - start == pytest.approx(heard)
        assert not election.may_acknowledge
        await epoch.renew(LENGTH_S)
        assert election.may_acknowledge and listening.monotonic() - start == pytest.approx(heard)


async def test_renewals_in_time_leave_it_alone() -> None:
    clock, _, epoch, listening, start = await started()
    for _ in range(10):
        clock.advance(0.3)
        await epoch.renew(LENGTH_S)
    assert listening.monotonic() - start == pytest.approx(3.0)


async def test_a_renewal_that_is_answered_late_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts from its sending, so heartbeats are refused until the next one is answered."""
    clock, election, epoch, listening, start = await started()
    run = epoch.run

    async def slowly(*args: object, **options: object) -> None:
        clock.advance(0.7)
        await run(*args, **options)  # type: ignore[arg-type]

    clock.advance(0.2)
    monkeypatch.setattr(epoch, "run", slowly)
    await epoch.renew(LENGTH_S)
    clock.advance(0.1)
    assert not election.may_acknowledge and listening.monotonic() - start == pytest.approx(0.5)
    monkeypatch.setattr(epoch, "run", run)
    await epoch.renew(LENGTH_S)
    clock.advance(0.1)
    assert election.may_acknowledge and listening.monotonic() - start == pytest.approx(0.6)


async def test_with_a_store_of_its_own_a_manager_always_listens() -> None:
    clock, election, _, listening, start = await started(exclusive=True)
    clock.advance(100.0)
    assert election.may_acknowledge and listening.monotonic() - start == pytest.approx(100.0)
