"""For how long nobody holds a lease when the host of the primary manager is lost, or its store is away."""

import pytest

from tests.sim.faults import parse
from tests.sim.run import run
from tests.sim.workload import Load
from tests.sim.world import LEASE_S, Size, World
from threefs.cluster.registration import HEARTBEATS_PER_T

_LOOKS_S = 0.02
_STEPS = 4


@pytest.mark.parametrize("step", range(_STEPS))
def test_a_storage_process_that_is_lost_with_the_primary_keeps_the_others_from_no_lease(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each heartbeat waited for the dead manager first. When the next one answered at last, leases had lapsed, and
    waited for the dead storage process."""
    cut_power, without_s = World.cut_power, dict.fromkeys(("s2", "s3"), 0.0)

    def look(world: World) -> None:
        for host in without_s:
            if any(target.serving and not target.has_lease for target in world.storages[host].targets):
                without_s[host] += _LOOKS_S
        world.loop.call_later(_LOOKS_S, look, world)

    def cut(world: World, host: str) -> None:
        if host == "m1":
            look(world)
            host = world.primary() or host
        cut_power(world, host)

    monkeypatch.setattr(World, "cut_power", cut)
    at = 6.0 + step * LEASE_S / HEARTBEATS_PER_T / _STEPS
    size = Size(storage=3, targets_per_disk=2, clients=1, managers=2)
    steps = parse(f"{at} power s1 9.0\n{at} power m1 9.0\n15.9 cut s1 c1")
    outcome = run(5, size=size, load=Load(chunks=1, pause_s=5.0, files_pause_s=5.0), scenario=steps)
    assert outcome.faults == {"power": 2, "cut": 1} and not outcome.violations, outcome.violations
    assert max(without_s.values()) < 0.6 * LEASE_S, without_s


@pytest.mark.parametrize("away", ["", "\n4.0 power s1 9.0"])
def test_a_store_that_is_away_for_longer_than_t_puts_nobody_out(away: str) -> None:
    """The primary refuses heartbeats meanwhile. Once the store was back it took their senders for dead: the first one
    that it heard served alone, and the others were brought up to date. One that is dead is still found."""
    size = Size(storage=3, targets_per_disk=2, clients=1, managers=1)
    steps = parse(f"3.0 store m1 {1.25 * LEASE_S}{away}\n15.9 cut s1 c1")
    outcome = run(5, size=size, load=Load(chunks=1, pause_s=5.0, files_pause_s=5.0), scenario=steps, logs=True)
    assert not outcome.violations, outcome.violations
    changes = [line for line in outcome.trace if "chain changed" in line]
    assert any("the lease cannot be renewed now" in line for line in outcome.trace)
    assert bool(changes) == bool(away) and not any("lastsrv" in line for line in changes)
