"""Under load a link between two storage processes fails, and nothing else: all writes go on within a bound."""

import itertools

import pytest

from tests.harness.seeded_random import SeededRandom
from tests.sim import failed_links, net
from tests.sim.faults import Step
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import LEASE_S, Size

_DOWN_S = 8 * LEASE_S
#: From docs/protocol.md.
_BOUND_S = 4 * LEASE_S


@pytest.mark.parametrize("kind", ["link", "half", "narrow"])
@pytest.mark.parametrize("seed", [1, 2])
def test_writes_go_on_within_four_lease_times(seed: int, kind: str) -> None:
    """In the chain of three hosts two of the three pairs are neighbours."""
    waited_s = []
    for pair in itertools.combinations(("s1", "s2", "s3"), 2):
        size = Size(storage=3, targets_per_disk=1, clients=3)
        load = Load(faults_s=_DOWN_S + 2.0, chunks=4, apart=1.0, large=float(kind == "narrow"))
        until_then = Step(
            1.0 + _DOWN_S, "cut", ("c1", "c2")
        )  # all faults end after the last one, which does not matter
        outcome = run(seed, size=size, load=load, scenario=[Step(1.0, kind, pair, _DOWN_S), until_then])
        assert not outcome.violations, "\n".join([*outcome.trace, *outcome.violations])
        waited_s.append(outcome.longest["write"])
    assert max(waited_s) < _BOUND_S, waited_s
    assert sum(waited > LEASE_S for waited in waited_s) == 2, waited_s


def test_writes_go_on_although_what_is_large_breaks_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of being lost without a word, so that a probe ends before its time."""
    monkeypatch.setattr(net, "_GIVE_UP_S", LEASE_S / 20)
    size = Size(storage=3, targets_per_disk=1, clients=3)
    load = Load(faults_s=_DOWN_S + 2.0, chunks=4, apart=1.0, large=1.0)
    scenario = [Step(1.0, "narrow", ("s2", "s3"), _DOWN_S), Step(1.0 + _DOWN_S, "cut", ("c1", "c2"))]
    outcome = run(1, size=size, load=load, scenario=scenario)
    assert not outcome.violations, "\n".join([*outcome.trace, *outcome.violations])
    assert LEASE_S < outcome.longest["write"] < _BOUND_S


def test_some_seeds_have_links_that_fail() -> None:
    hosts = ("s1", "s2", "s3")
    drawn = [failed_links.draw(SeededRandom(seed, "links"), hosts, 12.0) for seed in range(200)]
    steps = [step for steps in drawn for step in steps]
    assert {what for _, what, _, _ in steps} == {"link", "half", "narrow"}
    assert 20 < sum(map(bool, drawn)) < 80
    assert all(one != other and {one, other} <= {*hosts} for _, _, (one, other), _ in steps)
    assert any(len(steps) > 1 for steps in drawn)
