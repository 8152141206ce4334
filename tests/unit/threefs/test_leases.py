import pytest
from threefs_storage.engine.exactly_once import WRITE_LIFETIME_MINUTES

from threefs import leases
from threefs.rpc.limits import Limits

#: The clock of one machine runs at most so much faster than that of another one.
CLOCK_RATIO = 1.2


@pytest.mark.parametrize(("t_s", "lease_s"), [(10.0, 30.0), (20.0, 60.0), (0.5, 15.0)])
def test_it_follows_from_t_but_is_never_short(t_s: float, lease_s: float) -> None:
    assert leases.client_lease_s(t_s) == lease_s >= t_s > leases.target_lease_s(t_s)


def test_what_may_arrive_again_is_remembered_for_longer() -> None:
    """A message waits in its client, and then in a connection that is silent for as long as the service keeps it."""
    on_its_way_s = CLOCK_RATIO * (leases.MAX_OPERATION_S + Limits().idle_s)
    assert on_its_way_s < leases.REPLAYS_KEPT_S < 60 * WRITE_LIFETIME_MINUTES


@pytest.mark.parametrize("t_s", [0.5, 10.0])
def test_whoever_relies_on_a_promise_stops_before_it_ends_even_if_its_clock_is_slow(t_s: float) -> None:
    assert leases.DELEGATION_RECALL_S >= CLOCK_RATIO * leases.DELEGATION_S
    assert leases.client_lease_s(t_s) >= CLOCK_RATIO * leases.client_reliance_s(t_s)
    assert t_s >= CLOCK_RATIO * leases.target_lease_s(t_s)
