"""Every short history of errors, opens, closes and syncs, against what it should mean in plain words."""

from dataclasses import dataclass, field
from itertools import product

from threefs_client.data.errseq import Errseq

STEPS = ("lost", "open", "sync 0", "sync 1", "close 0", "close 1", "read")
LENGTH = 6


@dataclass
class Model:
    """What each handle still has to be told, as sets."""

    errors: list[Exception] = field(default_factory=list)
    untold: list[set[int]] = field(default_factory=list)  # by handle
    told: set[int] = field(default_factory=set)  # to anybody, by a sync

    def open(self) -> None:
        newest = {len(self.errors) - 1} if self.errors and len(self.errors) - 1 not in self.told else set[int]()
        self.untold.append(newest)

    def lost(self, error: Exception) -> None:
        self.errors.append(error)
        for each in self.untold:
            each.add(len(self.errors) - 1)

    def tell(self, handle: int, *, sync: bool) -> Exception | None:
        if not self.untold[handle]:
            return None
        if not sync:
            return self.errors[-1]
        self.told |= set(range(len(self.errors)))
        self.untold[handle].clear()
        return self.errors[-1]


def test_every_history() -> None:
    for steps in product(STEPS, repeat=LENGTH):
        errors, seen, model = Errseq(), list[int](), Model()
        for step in steps:
            what, _, handle = step.partition(" ")
            if what == "lost":
                error = OSError(len(model.errors))
                errors.record(error)
                model.lost(error)
            elif what == "open":
                seen.append(errors.sample())
                model.open()
            elif what == "read":
                before = errors.current
                assert errors.check(before) is None
            elif int(handle) < len(seen):
                number = int(handle)
                if what == "sync":
                    seen[number], told = errors.check_and_advance(seen[number])
                else:
                    told = errors.check(seen[number])
                assert told is model.tell(number, sync=what == "sync"), steps


def test_errors_since_a_moment() -> None:
    errors = Errseq()
    errors.record(OSError(1))
    before = errors.current
    assert errors.check(before) is None
    second = OSError(2)
    errors.record(second)
    assert errors.check(before) is second
    assert errors.check_and_advance(errors.sample())[1] is second, "nobody was told of it"
    assert errors.check_and_advance(errors.sample())[1] is None
