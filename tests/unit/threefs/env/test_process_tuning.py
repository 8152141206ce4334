import gc
import resource
import weakref

import pytest

from tests.harness.children import in_child
from threefs.env.process_tuning import freeze_objects, max_connections, max_control_connections, raise_descriptor_limit


@pytest.mark.parametrize(
    ("soft", "most", "control"), [(1024, 512, 128), (100, 50, 12), (4096, 3072, 512), (20_000, 4096, 2500)]
)
def test_connections_leave_descriptors_for_the_rest(soft: int, most: int, control: int) -> None:
    def child() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (max_connections(4096), max_control_connections(4096)) == (most, control)

    assert in_child(child) == 0


def test_the_limit_is_raised_as_far_as_that_is_free() -> None:
    def child() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (3000, 3000)

    assert in_child(child) == 0


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.self = self


def test_frozen_objects_are_not_collected_and_later_garbage_is() -> None:
    before = gc.get_freeze_count()
    try:
        freeze_objects()
        assert gc.get_freeze_count() > before + 1000
        found = weakref.ref(Node())
        gc.collect()
        assert found() is None
    finally:
        gc.unfreeze()


def test_garbage_of_the_start_is_not_kept() -> None:
    found = weakref.ref(Node())
    try:
        freeze_objects()
        assert found() is None
    finally:
        gc.unfreeze()
