"""Memory that a loader shares with its worker processes: a slot holds one batch.

A slot is a file without a name in memory, so it needs no room in /dev/shm, and nothing of it stays when its processes
are killed. It contains three columns (numbers, starts and lengths of the samples), then the samples.
"""

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLUMNS = 3
_COLUMN_BYTES = 8


def head_bytes(samples: int) -> int:
    """The columns of a batch of that many samples."""
    return _COLUMNS * _COLUMN_BYTES * samples


def columns(memory: Any, samples: int) -> NDArray[np.int64]:
    """Numbers, starts and lengths, in this order."""
    return np.frombuffer(memory, np.int64, _COLUMNS * samples).reshape(_COLUMNS, samples)


class Slot:
    """The side of the loader, which makes the slot. The worker maps the same descriptor."""

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self.descriptor: int | None = os.memfd_create("threefs-batch")
        try:
            os.ftruncate(self.descriptor, size_bytes)
            self.memory = mmap.mmap(self.descriptor, size_bytes)
        except BaseException:
            self.close_descriptor()
            raise
        self._kind = ctypes.c_ubyte * size_bytes

    def lend(self, given_back: Callable[[], object]) -> Any:
        """The memory, as an object of its own: the call is made when it and all views of it are gone."""
        lent = self._kind.from_buffer(self.memory)
        weakref.finalize(lent, given_back).atexit = False
        return lent

    def close_descriptor(self) -> None:
        """The worker has it. The memory goes with the last view of it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
