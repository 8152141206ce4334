import os

from threefs.env.random import RANDOM


def test_ranges() -> None:
    assert {RANDOM.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(1.0 <= RANDOM.uniform(1.0, 2.0) <= 2.0 for _ in range(50))


def test_tokens_do_not_repeat() -> None:
    tokens = {RANDOM.token(16) for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}


def test_a_forked_child_draws_numbers_of_its_own() -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, RANDOM.below(1 << 62).to_bytes(8, "big"))
        os._exit(0)
    os.waitpid(child, 0)
    try:
        assert int.from_bytes(os.read(read, 8), "big") != RANDOM.below(1 << 62)
    finally:
        os.close(read)
        os.close(write)
