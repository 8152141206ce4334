import gc
import weakref

from threefs.env import gc_tuning


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.self = self


def test_what_was_there_is_left_alone_and_later_garbage_is_not() -> None:
    before = gc.get_freeze_count()
    try:
        gc_tuning.freeze_objects()
        assert gc.get_freeze_count() > before + 1000
        found = weakref.ref(Node())
        gc.collect()
        assert found() is None
    finally:
        gc.unfreeze()


def test_garbage_of_the_start_is_not_kept() -> None:
    found = weakref.ref(Node())
    try:
        gc_tuning.freeze_objects()
        assert found() is None
    finally:
        gc.unfreeze()
