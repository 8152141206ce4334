"""Zipf's law over any number of ranks, in constant memory: rejection-inversion by Hörmann and Derflinger (1996)."""

import numpy as np
from numpy.typing import NDArray


class Zipf:
    """Draws ranks from 0 to `ranks` - 1; rank k comes in proportion to (k + 1) ** -theta."""

    def __init__(self, ranks: int, theta: float, random: np.random.Generator) -> None:
        assert ranks >= 1 and theta > 0
        self._ranks = ranks
        self._theta = theta
        self._random = random
        self._low = self._integral(np.array([1.5]))[0] - 1.0
        self._high = self._integral(np.array([ranks + 0.5]))[0]
        self._sure = 2.0 - self._inverse(self._integral(np.array([2.5])) - np.array([2.0]) ** -theta)[0]

    def draw(self, count: int) -> NDArray[np.int64]:
        found: list[NDArray[np.int64]] = []
        missing = count
        while missing:
            area = self._high + self._random.random(missing) * (self._low - self._high)
            place = self._inverse(area)
            rank = np.clip(np.floor(place + 0.5), 1, self._ranks)
            accepted = (rank - place <= self._sure) | (area >= self._integral(rank + 0.5) - rank**-self._theta)
            found.append(rank[accepted].astype(np.int64) - 1)
            missing -= len(found[-1])
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _integral(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of x ** -theta."""
        log = np.log(x)
        result: NDArray[np.float64] = log * _ratio((1.0 - self._theta) * log)
        return result

    def _inverse(self, area: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = np.maximum(area * (1.0 - self._theta), -1.0)
        near = np.abs(scaled) < 1e-8
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = np.where(
                near, area * (1.0 - scaled / 2.0), area * np.log1p(scaled) / np.where(near, 1.0, scaled)
            )
        result: NDArray[np.float64] = np.exp(exponent)
        return result


def _ratio(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """(e**x - 1) / x, also near 0."""
    near = np.abs(x) < 1e-8
    result: NDArray[np.float64] = np.where(near, 1.0 + x / 2.0, np.expm1(x) / np.where(near, 1.0, x))
    return result
