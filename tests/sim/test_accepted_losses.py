"""Chains whose last copies are lost for good, at the end of a run."""

from typing import Any

import pytest
from threefs_manager.chains import transitions

from tests.sim.accepted_losses import AcceptedLoss
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.routing import PublicState

_READ = AcceptedLoss._read
_OLDER = 1  # a seed


def played(storage: int = 3, replicas: int = 3, *, seed: int = 4) -> Outcome:
    size = Size(storage=storage, targets_per_disk=1, replicas=replicas, managers=2, clients=2)
    return run(seed, size=size, load=Load(faults_s=1.0, losses=True), scenario=[])


def said(outcome: Outcome, text: str) -> bool:
    return any(text in line for line in outcome.trace)


@pytest.mark.parametrize(("storage", "replicas"), [(3, 3), (2, 2)])
def test_a_chain_goes_on_with_an_older_state_once_its_loss_is_accepted(storage: int, replicas: int) -> None:
    outcome = played(storage, replicas)
    assert not outcome.violations, outcome.violations
    assert said(outcome, "is out, then the disks of")


def test_a_target_that_serves_what_it_had_without_being_told_to_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def return_any(states: dict[Any, PublicState], members: Any, observed: Any) -> None:
        alive = [target for target in states if transitions._is_alive(target, observed)]
        if PublicState.SERVING not in states.values() and alive:
            states[alive[0]] = PublicState.SERVING

    monkeypatch.setattr(transitions, "_return_lastsrv", return_any)
    assert any("R7: only a lastsrv target serves alone" in violation for violation in played().violations)


def test_an_older_store_of_the_managers_that_knows_nothing_of_it_is_refused() -> None:
    outcome = played(seed=_OLDER)
    assert not outcome.violations, outcome.violations
    assert said(outcome, "-- an older store of the managers")


def test_a_loss_that_nobody_accepts_keeps_the_chain_from_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AcceptedLoss, "_accept", _do_nothing)
    assert any("not healthy after the loss" in violation for violation in played().violations)


def test_a_fault_may_take_a_chain_from_a_further_host_beside_it() -> None:
    """One that did not answer for a while, so that the disks which were emptied then had all that there was."""
    outcome = run(54682)
    assert not outcome.violations, outcome.violations
    assert said(outcome, "pause s3")


def test_a_write_that_is_gone_though_nobody_has_accepted_a_loss_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AcceptedLoss, "_read", _read_as_if_nothing_was_asked)
    assert any("after others were lost, not" in violation for violation in played().violations)


def test_a_host_that_has_not_what_it_had_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = AcceptedLoss._contents
    seen: list[int] = []

    def forgetful(self: AcceptedLoss, chain: Any) -> Any:
        seen.append(chain)
        found = contents(self, chain)
        return found if len(seen) <= len(self._chains) else dict(list(found.items())[1:])

    monkeypatch.setattr(AcceptedLoss, "_contents", forgetful)
    assert any("after a loss was accepted, and" in violation for violation in played().violations)


async def _do_nothing(*_: Any) -> None: ...


async def _read_as_if_nothing_was_asked(self: AcceptedLoss, written: bytes, *, but: Any = ()) -> None:
    await _READ(self, written)
