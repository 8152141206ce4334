import numpy as np
import pytest
from threefs_data.batch import Batch

from threefs.errors import InvalidArgument


def batch_of(samples: list[bytes], between: int = 4) -> Batch:
    lengths = np.array([len(sample) for sample in samples], np.int64)
    starts = np.cumsum(lengths + between) - lengths
    return Batch(np.arange(len(samples)), bytearray(b"".join(bytes(between) + s for s in samples)), starts, lengths)


def test_samples_of_one_length_are_the_rows_of_an_array_without_a_copy() -> None:
    batch = batch_of([b"\1\0\2\0", b"\3\0\4\0", b"\5\0\6\0"])
    rows = batch.array("<u2")
    assert rows.tolist() == [[1, 2], [3, 4], [5, 6]]
    rows[1, 0] = 7
    assert bytes(batch.samples[1]) == b"\7\0\4\0"


def test_samples_of_different_lengths_are_views() -> None:
    batch = batch_of([b"a", b"", b"bcd"])
    assert [bytes(sample) for sample in batch.samples] == [b"a", b"", b"bcd"]
    assert len(batch) == 3
    with pytest.raises(InvalidArgument, match="0 to 3 bytes"):
        batch.array()


def test_samples_must_consist_of_whole_items() -> None:
    with pytest.raises(InvalidArgument, match="uint16"):
        batch_of([b"abc"]).array("u2")


def test_a_batch_without_samples() -> None:
    batch = batch_of([])
    assert batch.samples == [] and batch.array("u2").shape == (0, 0)


def test_a_tensor_has_memory_of_its_own() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (make ml-venv)")
    batch = batch_of([b"\1\0\0\0\0\0\0\0", b"\2\0\0\0\0\0\0\0"])
    tensor = batch.tensor(np.int64)
    batch.array(np.int64)[:] = 9
    assert tensor.dtype == torch.int64 and tensor.tolist() == [[1], [2]]
    assert tensor.is_pinned() == torch.cuda.is_available()
