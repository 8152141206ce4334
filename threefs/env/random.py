"""Randomness. All code draws it here, so that a simulation can seed it."""

import os
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
    """Tokens come from the operating system. Other draws are frequent and need not be secret, so they come from a
    generator of this process, which a forked child seeds again."""

    def __init__(self) -> None:
        self._source = random.Random()
        os.register_at_fork(after_in_child=self._source.seed)

    def uniform(self, low: float, high: float) -> float:
        return self._source.uniform(low, high)

    def below(self, bound: int) -> int:
        assert bound > 0, "there is no such integer"
        bits = (bound - 1).bit_length()
        number = self._source.getrandbits(bits)
        while number >= bound:
            number = self._source.getrandbits(bits)
        return number

    def token(self, size_bytes: int) -> bytes:
        return os.urandom(size_bytes)


RANDOM = RealRandom()
