"""When an answer of the cluster expires on a mount.

An answer shows the state of some moment after its question was sent. Nothing is known of later changes. So it is valid
for `cache_s` from the moment when the question was *sent*, however long the answer was under way.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Validity:
    """With `cache_s` 0 no answer is valid."""

    cache_s: float

    def __bool__(self) -> bool:
        return self.cache_s > 0

    def is_valid(self, asked_s: float, now_s: float) -> bool:
        return now_s < asked_s + self.cache_s

    def left_s(self, asked_s: float, now_s: float) -> float:
        """For how many seconds the answer is still valid; 0 if it has expired."""
        return max(0.0, asked_s + self.cache_s - now_s)

    def expiry_s(self, asked_s: float) -> float:
        """The first moment at which the answer is not valid any more."""
        return asked_s + self.cache_s
