"""Randomness from a seed: threefs.env.random.Random for the code under test, and what a test itself draws."""

import random


class SeededRandom:
    def __init__(self, *seeds: object) -> None:
        self.source = random.Random("/".join(map(str, seeds)))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.source.random()

    def below(self, bound: int) -> int:
        return self.source.randrange(bound)

    def token(self, size_bytes: int) -> bytes:
        return self.source.randbytes(size_bytes)

    def chance(self, probability: float) -> bool:
        return self.source.random() < probability
