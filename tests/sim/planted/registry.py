"""Bugs on purpose: each takes one rule of the system away, and the simulator must notice.

They are made by changing the classes of the program inside a simulation's own process. Nothing in the program knows of
them, so no production build can reach them. `tests.sim.planted_bug_hunt` tries golden runs and seeds until each one is
caught.
"""

from collections.abc import Callable
from typing import Any

Plant = Callable[[], None]
PLANTED: dict[str, Plant] = {}
#: By bug: the real test that must fail with it.
TESTED: dict[str, str] = {}


def plant(function: Plant) -> Plant:
    assert function.__name__ not in PLANTED, function.__name__
    PLANTED[function.__name__] = function
    return function


def plant_for(test: str) -> Callable[[Plant], Plant]:
    """The same for a bug that only a real test can meet: "FILE::NAME" below `tests`."""

    def note(function: Plant) -> Plant:
        TESTED[function.__name__] = f"tests/{test}"
        return plant(function)

    return note


def put(owner: Any, name: str, value: Any) -> None:
    """Something of that name must be there: else the bug would no longer be one when the program is changed."""
    assert hasattr(owner, name), f"{owner} has no {name}: the bug that is planted there has to move"
    setattr(owner, name, value)


class Anything(int):
    """Equal to every number."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__
