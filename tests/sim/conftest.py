"""What all tests of the simulator have."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    """As in runs of many: when a collection ends what a killed process has left is no part of the simulation."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
