"""Operations of a slot of the engine `meta` on numbered names, as a pure function of the job and its seed.

The names of a slot are those from `low` to `high`. It creates the next one, removes the oldest one, renames the oldest
one to the next one, and looks at any of them. Slots have names of their own, so no two calls in flight meet.
"""

from dataclasses import dataclass

import numpy as np

from threefs_bench.load.job import Job

_DRAWN = 1024


@dataclass(frozen=True, slots=True)
class NameCall:
    """One call. `renamed` has the new numbers of the names."""

    operation: str
    numbers: tuple[int, ...]
    renamed: tuple[int, ...] = ()


class NameWindow:
    """The calls of one slot, in sequence."""

    def __init__(self, job: Job, names: int, seed: int) -> None:
        """`names` exist at the beginning, from number 0 on."""
        self._batch = job.batch
        self._random = np.random.default_rng(seed)
        shares = job["metaop"]
        self._operations = [share.what for share in shares]
        self._chances = np.array([share.percent for share in shares]) / 100.0
        self._waiting: list[int] = []
        self._low, self._high = 0, names

    def next(self) -> NameCall | None:
        """None when no name is left that the operation could use, and none is created."""
        operation = self._draw()
        there = self._high - self._low
        if operation == "list":
            return NameCall(operation, ())
        if operation == "create" or (not there and "create" in self._operations):
            self._high += self._batch
            return NameCall("create", tuple(range(self._high - self._batch, self._high)))
        if not there:
            return None
        count = min(self._batch, there)
        if operation == "stat":
            return NameCall(operation, tuple(self._random.integers(self._low, self._high, count).tolist()))
        oldest = tuple(range(self._low, self._low + count))
        self._low += count
        if operation == "remove":
            return NameCall(operation, oldest)
        self._high += count
        return NameCall(operation, oldest, tuple(range(self._high - count, self._high)))

    def _draw(self) -> str:
        if len(self._operations) == 1:
            return str(self._operations[0])
        if not self._waiting:
            self._waiting = self._random.choice(len(self._operations), _DRAWN, p=self._chances).tolist()
        return str(self._operations[self._waiting.pop()])


def names_before(job: Job, slot: int) -> int:
    """How many names of a slot have to exist before the job begins."""
    if [share.what for share in job["metaop"]] == ["create"]:
        return 0
    return job.files // job.slots + (slot < job.files % job.slots)
