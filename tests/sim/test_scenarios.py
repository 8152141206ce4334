"""Golden failovers of a chain of three, with the story that each must tell. T is 2 seconds."""

import multiprocessing

import pytest

from tests.sim.golden.failovers import STORIES
from tests.sim.planted.catalog import PLANTED
from tests.sim.scenarios import play
from tests.sim.world import Size


def _play(name: str, size: Size | None, bug: str | None) -> None:
    if bug is not None:
        PLANTED[bug]()
    play(STORIES[name], size=size)


def apart(name: str, size: Size | None = None, bug: str | None = None) -> None:
    """In a process of its own, with which all that a killed simulated process leaves behind goes away."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply(_play, (name, size, bug))


@pytest.mark.parametrize("name", STORIES)
def test_failover(name: str) -> None:
    apart(name)


@pytest.mark.parametrize("drift", [0.03, 0.1])
def test_clocks_drift_at_the_edge_of_a_lease(drift: float) -> None:
    """A lease lasts half of T by the clock of its target, and the manager waits for all of T by its own."""
    size = Size(storage=3, targets_per_disk=1, clients=2, drift=drift)
    for name in ("a replica is cut off together with a client", "the chain changes under load"):
        apart(name, size)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (
            "chain_version_ignored",
            "a forward arrives when its target was out of the chain and is back in another place",
        ),
        ("finisher_off", "a client dies with its write under way, and nobody asks for the chunk again"),
        (
            "deposed_manager_acknowledges",
            "a primary that lost its store is cut off together with a replica and a client",
        ),
    ],
)
def test_a_story_that_one_rule_holds_together(bug: str, name: str) -> None:
    with pytest.raises(AssertionError):
        apart(name, bug=bug)


def test_a_story_that_is_another_one_fails() -> None:
    with pytest.raises(AssertionError, match="staged 9 is not told"):
        play("write c1 old\nthen\nexpect head staged 9")
    with pytest.raises(AssertionError, match="c2 read b'old'"):
        play("write c1 old\nthen\nread c2 new")
