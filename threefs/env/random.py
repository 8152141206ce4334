"""Randomness, in one place so that a simulation can seed it."""

import random
from typing import Protocol


class Random(Protocol):
    def uniform(self, low: float, high: float) -> float: ...

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        ...

    def token(self, size_bytes: int) -> bytes:
        """Unpredictable bytes, for identities."""
        ...


class RealRandom:
    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def below(self, bound: int) -> int:
        return self._source.randrange(bound)

    def token(self, size_bytes: int) -> bytes:
        return self._source.randbytes(size_bytes)


RANDOM = RealRandom()
