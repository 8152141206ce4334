"""A batch of samples, as a training gets it."""

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from threefs.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples are parts of `memory`, which stays theirs until no view of it is left."""

    numbers: NDArray[np.int64]
    memory: Any
    starts: NDArray[np.int64]  # of the samples in the memory
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def samples(self) -> list[memoryview]:
        whole = memoryview(self.memory).cast("B")
        ends = self.starts + self.lengths
        return [whole[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)]

    def array(self, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """The samples as the rows of one array, without a copy. They must have one length. Raises InvalidArgument."""
        item = np.dtype(dtype)
        length = int(self.lengths[0]) if len(self) else 0
        if (self.lengths != length).any() or length % item.itemsize:
            shortest, longest = self.lengths.min(), self.lengths.max()
            raise InvalidArgument(
                f"samples of {shortest} to {longest} bytes are not the rows of an array of {item}; use `samples`"
            )
        strides = np.diff(self.starts)
        stride = int(strides[0]) if len(strides) else length
        assert (strides == stride).all(), "samples of one length lie one after the other"
        first = int(self.starts[0]) if len(self) else 0
        shape = (len(self), length // item.itemsize)
        return np.ndarray(shape, item, self.memory, first, (stride, item.itemsize))

    def tensor(self, dtype: DTypeLike = np.uint8) -> Any:
        """A tensor of PyTorch with the same rows: a copy, in pinned memory if there is a CUDA device."""
        torch = importlib.import_module("torch")
        rows = np.ascontiguousarray(self.array(dtype))
        tensor = torch.from_numpy(rows)
        return tensor.pin_memory() if torch.cuda.is_available() else tensor
