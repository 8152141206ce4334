from threefs.delegations import CLAIM_S, RECALL_S


def test_others_wait_longer_than_a_claim_is_relied_on_even_if_a_clock_is_slow() -> None:
    assert RECALL_S >= 1.1 * CLAIM_S
