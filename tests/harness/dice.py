"""Randomness that repeats, for tests."""

import random


class Dice:
    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def below(self, bound: int) -> int:
        return self._source.randrange(bound)

    def token(self, size_bytes: int) -> bytes:
        return self._source.randbytes(size_bytes)
