import mmap
import os

import numpy as np
import pytest
from threefs_data import batch_slots
from threefs_data.batch_slots import Slot


def test_a_slot_comes_back_when_no_view_of_it_is_left() -> None:
    slot = Slot(1, 1000)
    returned: list[int] = []
    lent = slot.lend(lambda: returned.append(1))
    view = memoryview(lent).cast("B")[10:20]
    array = np.ndarray((2, 2), np.uint8, lent, 100)[1:]
    for _ in range(2):
        assert not returned
        lent = None
    del view
    assert not returned
    array[0, 0] = 5
    del array
    assert returned == [1]
    assert slot.memory[102] == 5
    slot.close_descriptor()


def test_a_worker_sees_the_same_memory() -> None:
    slot = Slot(1, 4096)
    assert slot.descriptor is not None
    with mmap.mmap(slot.descriptor, 4096) as other:
        batch_slots.columns(slot.memory, 2)[:] = [[1, 2], [3, 4], [5, 6]]
        found = np.frombuffer(other[: batch_slots.head_bytes(2)], np.int64)
    assert found.tolist() == [1, 2, 3, 4, 5, 6]
    descriptor = slot.descriptor
    slot.close_descriptor()
    slot.close_descriptor()
    assert not os.path.exists(f"/proc/self/fd/{descriptor}")


def test_memory_that_is_refused_leaves_no_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="empty"):
        Slot(1, 0)
    assert os.listdir("/proc/self/fd") == before
