"""A queue of pieces of work that serves several kinds by weight: deficit round robin. Pure.

The kinds take turns. In its turn a kind gets a credit in proportion to its weight, and pieces are taken from it while
they cost no more than its credit. Unused credit is kept while the kind has pieces. So over time each kind that always
has pieces is served bytes in proportion to its weight, whatever the sizes of its pieces (Shreedhar and Varghese, 1996).
"""

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class FairQueue(Generic[K, T]):
    """Pieces of one kind keep their order."""

    def __init__(self, weights: Mapping[K, int], quantum_bytes: int) -> None:
        """In each turn a kind gets a credit of its weight times `quantum_bytes`."""
        assert all(weight > 0 for weight in weights.values()), "a kind without weight would never be served"
        self._credits = {kind: weight * quantum_bytes for kind, weight in weights.items()}
        self._waiting: dict[K, deque[tuple[T, int]]] = {kind: deque() for kind in weights}
        self._turns: deque[K] = deque()  # kinds that have pieces; the first one has its turn
        self._credit: dict[K, int] = dict.fromkeys(weights, 0)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def push(self, kind: K, item: T, size: int) -> None:
        assert size > 0, "pieces that cost nothing would keep others waiting for ever"
        if not self._waiting[kind]:
            self._turns.append(kind)
        self._waiting[kind].append((item, size))

    def pop(self) -> T | None:
        """The next piece; None if there is none."""
        while self._turns:
            kind = self._turns[0]
            waiting = self._waiting[kind]
            item, size = waiting[0]
            if size <= self._credit[kind]:
                waiting.popleft()
                self._credit[kind] -= size
                if not waiting:
                    self._retire(kind)
                return item
            if len(self._turns) == 1:  # no other kind waits for its turn
                self._credit[kind] = size
                continue
            self._turns.rotate(-1)
            self._begin_turn()
        return None

    def withdraw(self, kind: K, item: T) -> None:
        """Remove a piece that waits."""
        waiting = self._waiting[kind]
        for place, entry in enumerate(waiting):
            if entry[0] is item:
                del waiting[place]
                break
        else:
            raise AssertionError("only a piece that waits is withdrawn")
        if not waiting:
            self._retire(kind)

    def _retire(self, kind: K) -> None:
        """A kind without pieces keeps no credit: it would save it for a burst."""
        had_turn = self._turns[0] is kind
        self._turns.remove(kind)
        self._credit[kind] = 0
        if had_turn and self._turns:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._credit[self._turns[0]] += self._credits[self._turns[0]]
