"""For how long nobody holds a lease when the host of the primary manager is lost."""

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
