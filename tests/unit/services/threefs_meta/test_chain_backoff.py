"""A chain that takes no removals is tried by one file at a time, ever less often."""

from threefs_meta.chain_backoff import ChainBackoff
from threefs_meta.context import CHUNKS_TIMEOUT_S

from threefs.ids import ChainId

CHAIN, OTHER = ChainId(1), ChainId(2)


def test_a_chain_that_fails_is_tried_by_one_at_a_time_ever_less_often() -> None:
    tick = 10
    backoff = ChainBackoff(lambda: tick)
    assert backoff.begin(CHAIN) == CHUNKS_TIMEOUT_S
    for _ in range(3):  # that waited at the same time
        backoff.failed(CHAIN)
    tries = []
    for tick in range(10, 40):
        patience_s = [backoff.begin(CHAIN) for _ in range(3)]
        if patience_s[0] is not None:
            assert patience_s[0] < CHUNKS_TIMEOUT_S
            tries.append(tick)
            backoff.failed(CHAIN)
        assert patience_s[1:] == [None, None]
    assert tries == [11, 13, 17, 25, 33]
    assert backoff.begin(OTHER) == CHUNKS_TIMEOUT_S


def test_one_removal_that_succeeds_ends_it() -> None:
    tick = 10
    backoff = ChainBackoff(lambda: tick)
    backoff.failed(CHAIN)
    assert backoff.begin(CHAIN) is None
    tick = 11
    assert backoff.begin(CHAIN) is not None
    backoff.succeeded(CHAIN)
    assert backoff.begin(CHAIN) == backoff.begin(CHAIN) == CHUNKS_TIMEOUT_S
