"""What all tests of the simulator have."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    """A collection ends abandoned coroutines at some moment of its own, and each seed has to take the same course."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
