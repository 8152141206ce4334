import gc
import weakref
from collections.abc import Iterator

import pytest

from threefs.env import garbage


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_was_there_is_left_alone_and_later_garbage_is_not() -> None:
    before = gc.get_freeze_count()
    garbage.leave_alone()
    assert gc.get_freeze_count() > before + 1000
    found = weakref.ref(Node())
    gc.collect()
    assert found() is None


def test_garbage_of_the_start_is_not_kept() -> None:
    found = weakref.ref(Node())
    garbage.leave_alone()
    assert found() is None


def test_young_objects_are_looked_at_in_thousands() -> None:
    garbage.leave_alone()
    gc.collect()
    found = weakref.ref(Node())
    nodes = [Node() for _ in range(5000)]
    assert found() is not None, "not yet"
    nodes += [Node() for _ in range(10_000)]
    assert found() is None, "it was looked for by itself"
