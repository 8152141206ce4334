"""The bytes of tensors, without a copy where that is possible."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from threefs_checkpoint.batch_reader import BatchReader
from threefs_checkpoint.slices import StoredSlice, portions

from threefs.errors import InvalidArgument

#: The numbers that a file may hold, by the names that torch gives them.
DTYPES = {
    str(found).removeprefix("torch."): found
    for found in vars(torch).values()
    if isinstance(found, torch.dtype) and not str(found).startswith(("torch.q", "torch.bits"))
}

_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def dtype_name(dtype: torch.dtype) -> str:
    """Raises InvalidArgument."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InvalidArgument(f"a tensor of {dtype} has no plain numbers, so it cannot be stored")
    return name


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers themselves: without gradient, and without the conjugation or sign that a view may stand for."""
    if tensor.layout is not torch.strided:
        raise InvalidArgument(f"a tensor of the layout {tensor.layout} cannot be stored; call to_dense() on it")
    return tensor.detach().resolve_conj().resolve_neg()


def view_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor in main memory."""
    view: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return view


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """The same memory as an array of some type of the same size, because numpy does not have all types of torch. For a
    tensor in main memory."""
    raw = _RAW.get(tensor.dtype.itemsize)
    array: NDArray[Any] = (tensor if raw is None else tensor.view(raw)).numpy()
    return array


def slices(tensor: torch.Tensor, limit_bytes: int) -> Iterator[torch.Tensor]:
    """Contiguous tensors that follow each other in C order. Where a copy is needed, each has at most `limit_bytes`, or
    one number."""
    if tensor.is_contiguous() and (tensor.is_cpu or tensor.nbytes <= limit_bytes):
        yield tensor
    elif tensor.nbytes <= limit_bytes or not tensor.dim():
        yield tensor.contiguous()
    else:
        step = max(1, limit_bytes // max(1, tensor.nbytes // tensor.shape[0]))
        for first in range(0, tensor.shape[0], step):
            part = tensor[first : first + step]
            yield from slices(part[0] if part.shape[0] == 1 else part, limit_bytes)


def read_slice(
    reader: BatchReader, path: str, offset: int, dtype: torch.dtype, stored: StoredSlice, target: torch.Tensor
) -> None:
    """Fill `target` with a slice of the tensor that begins at `offset`. Numbers are converted if the types differ."""
    if target.is_cpu and target.dtype == dtype and not target.is_conj() and not target.is_neg():
        reader.add_slice(path, offset, stored, array_of(target))
        return
    for place, portion in portions(stored, reader.portion_bytes, dtype.itemsize):
        inside = tuple(slice(at, at + length) for at, length in zip(place, portion.part.shape, strict=True))
        read = torch.empty(portion.part.shape, dtype=dtype)
        reader.add_slice(path, offset, portion, array_of(read))
        reader.then(partial(_copy, target[(*inside, ...)], read))


def _copy(target: torch.Tensor, read: torch.Tensor) -> None:
    target.copy_(read)
