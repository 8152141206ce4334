import pytest

from threefs import leases


@pytest.mark.parametrize(("t_s", "lease_s"), [(10.0, 30.0), (20.0, 60.0), (0.5, 15.0)])
def test_it_follows_from_t_but_is_never_short(t_s: float, lease_s: float) -> None:
    assert leases.client_lease_s(t_s) == lease_s >= t_s > leases.target_lease_s(t_s)


def test_what_may_be_sent_again_is_remembered_for_longer() -> None:
    assert leases.MAX_OPERATION_S + 5 * 60 <= leases.REPLAYS_KEPT_S


def test_a_recall_waits_longer_than_a_delegation_is_relied_on_even_if_a_clock_is_slow() -> None:
    assert leases.DELEGATION_RECALL_S >= 1.1 * leases.DELEGATION_S
