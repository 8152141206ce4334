from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (make ml-venv)")
from threefs_torch import tensor_bytes  # noqa: E402

from threefs.errors import InvalidArgument  # noqa: E402


@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex64", "complex128", "bool", "uint16", "int64"]
)
def test_memory_is_shared(dtype: str) -> None:
    tensor = torch.zeros(3, 4, dtype=tensor_bytes.DTYPES[dtype])
    assert tensor_bytes.dtype_name(tensor.dtype) == dtype
    view = tensor_bytes.view_of(tensor)
    assert len(view) == tensor.nbytes
    view[0] = 1
    assert tensor.view(torch.uint8)[0, 0] == 1
    array = tensor_bytes.array_of(tensor.t())
    assert array.shape == (4, 3) and array.itemsize == tensor.itemsize
    assert array.reshape(-1).view(np.uint8)[0] == 1


def test_numbers_of_views_are_made_plain() -> None:
    tensor = torch.tensor([1 + 2j], requires_grad=True).conj()
    assert bytes(tensor_bytes.view_of(tensor_bytes.plain(tensor))) == np.array([1 - 2j], np.complex64).tobytes()
    with pytest.raises(InvalidArgument, match="layout"):
        tensor_bytes.plain(torch.eye(3).to_sparse())
    with pytest.raises(InvalidArgument, match="no plain numbers"):
        tensor_bytes.dtype_name(torch.quint8)


@pytest.mark.parametrize("limit", [1, 4, 10, 100, 10_000])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(120.0).reshape(2, 3, 20).permute(2, 0, 1),
        torch.arange(120.0)[::2],
        torch.arange(120.0).reshape(120, 1)[:, 0],
        torch.tensor(3.0),
        torch.empty(0, 3).t(),
        torch.arange(6.0).expand(4, 6),
    ],
)
def test_slices_are_the_tensor_and_copies_are_bounded(tensor: Any, limit: int) -> None:
    found = list(tensor_bytes.slices(tensor, limit))
    assert all(part.is_contiguous() for part in found)
    assert torch.equal(torch.cat([part.reshape(-1) for part in found]), tensor.reshape(-1))
    inside = tensor.untyped_storage().data_ptr()
    for part in found:
        is_copy = part.untyped_storage().data_ptr() != inside
        assert not is_copy or part.nbytes <= max(limit, part.itemsize)


def test_a_contiguous_tensor_is_not_copied() -> None:
    tensor = torch.arange(1000.0)
    (part,) = tensor_bytes.slices(tensor, 10)
    assert part.data_ptr() == tensor.data_ptr()
