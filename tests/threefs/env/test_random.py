from threefs.env.random import RANDOM


def test_ranges() -> None:
    assert {RANDOM.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(1.0 <= RANDOM.uniform(1.0, 2.0) <= 2.0 for _ in range(50))


def test_tokens_do_not_repeat() -> None:
    tokens = {RANDOM.token(16) for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}
