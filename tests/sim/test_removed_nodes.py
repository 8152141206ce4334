"""Nodes that die for good while other faults strike."""

import asyncio
import math

import pytest
from threefs_storage.peer_reachability import PeerReachability
from threefs_storage.targets import Targets

from tests.sim import removed_nodes
from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.world import Size
from threefs.cluster import registration

_SCENARIO = parse("0.5 join s4\n4.0 gone s2\n5.0 kill s3 0.5\n7.0 cut s1 s4")


def said(outcome: Outcome, text: str) -> bool:
    return any(text in line for line in outcome.trace)


def test_its_targets_find_another_place_and_it_is_removed() -> None:
    outcome = run(5, size=Size(storage=3, spares=1), scenario=_SCENARIO)
    assert not outcome.violations, outcome.violations
    assert said(outcome, "-- the node of s2 is removed")


def test_it_starts_again_if_no_node_can_take_its_targets() -> None:
    outcome = run(5, size=Size(storage=3), scenario=parse("1.0 gone s2"))
    assert not outcome.violations, outcome.violations
    assert said(outcome, "s2 is not removed, and goes on")


def test_a_process_that_cannot_do_without_its_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PeerReachability, "_forget_removed", lambda self: [self._routing().nodes[n] for n in self._peers]
    )
    outcome = run(5, size=Size(storage=3, spares=1), scenario=_SCENARIO)
    assert any("has died of KeyError" in violation for violation in outcome.violations)


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_whose_targets_are_not_set_aside_ends_nevertheless(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Its links are away until after the last fault. One that goes on for ever is found."""
    monkeypatch.setattr(Targets, "set_aside", lambda self, target: asyncio.sleep(3600))
    monkeypatch.setattr(removed_nodes, "_NOTICED_S", (10.0, 10.0))
    if not ends:
        monkeypatch.setattr(registration, "_MIN_IN_USE_S", math.inf)
    outcome = run(6, size=Size(storage=3, spares=1), scenario=_SCENARIO, logs=True)
    assert said(outcome, "-- the node of s2 is removed") and said(outcome, "the manager does not know this process")
    goes_on = f"s2.1 goes on {removed_nodes._ENDS_S:.0f} s after it was told of its removal"
    assert outcome.violations == [] if ends else goes_on in outcome.violations
