"""Targets that an administrator holds while there are faults: who draws them, and that none stays held."""

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.world import Size


def test_a_fifth_of_all_seeds_has_targets_that_are_held() -> None:
    held = [seed for seed in range(1000) if run_shape.draw(SeededRandom(seed, "run"), seed)[1].holds]
    assert 150 < len(held) < 250
    outcome = run(held[0])
    assert not outcome.violations, outcome.violations
    assert {step.what for step in outcome.scenario} >= {"offline", "rotate"}


def test_a_target_returns_although_no_manager_is_there_when_its_time_ends() -> None:
    scenario = parse("1.0 offline s1 2.0\n2.5 power m1 3.0\n9.0 offline s2 60.0")
    outcome = run(3, size=Size(managers=1), scenario=scenario)
    assert not outcome.violations and outcome.faults == {"offline": 2, "power": 1}


@pytest.mark.parametrize(
    ("scenario", "happens"),
    [
        ("1.0 offline s1 5.0\n3.0 wipe s2 1.0", "offline"),
        ("1.0 wipe s1 1.0\n1.1 offline s2 2.0\n1.2 rotate s3", "wipe"),
    ],
)
def test_a_disk_is_not_emptied_while_a_target_is_held(scenario: str, happens: str) -> None:
    """The last copy could be lost: the protocol does not promise to survive that."""
    outcome = run(3, size=Size(), scenario=parse(scenario))
    assert not outcome.violations and outcome.faults == {happens: 1}
