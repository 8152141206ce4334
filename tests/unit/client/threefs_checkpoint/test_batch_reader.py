from pathlib import Path

import numpy as np
import pytest
from threefs_checkpoint.batch_reader import BatchReader
from threefs_checkpoint.slices import Slice, StoredSlice

from tests.harness.local_files import LocalFiles
from threefs.errors import Corrupt


class Counting(LocalFiles):
    def read_batch(self, rows, into=None):  # type: ignore[no-untyped-def]
        batches.append(sum(length for _, _, length in rows))
        return super().read_batch(rows, into)


batches: list[int] = []


@pytest.fixture
def fs(tmp_path: Path) -> LocalFiles:
    batches.clear()
    (tmp_path / "a").write_bytes(np.arange(10_000, dtype="<u4").tobytes())
    return Counting(str(tmp_path))


def test_batches_are_bounded_and_what_follows_is_called_after_them(fs: LocalFiles) -> None:
    reader = BatchReader(fs, 100)
    read = [bytearray(40) for _ in range(5)]
    ended: list[int] = []
    for number, place in enumerate(read):
        reader.add("/a", [(4 * number, memoryview(place))], lambda number=number: ended.append(number))  # type: ignore[misc]
    assert batches == [120] and ended == [0, 1, 2]
    reader.then(lambda: ended.append(99))
    reader.flush()
    assert batches == [120, 80] and ended == [0, 1, 2, 3, 4, 99] and reader.bytes_read == 200
    assert [np.frombuffer(place, "<u4")[0] for place in read] == [0, 1, 2, 3, 4]
    reader.flush()
    assert batches == [120, 80]


@pytest.mark.slow
@pytest.mark.parametrize("batch_bytes", [1, 1000, 1 << 20])
def test_slices_fill_arrays_of_any_layout(fs: LocalFiles, batch_bytes: int) -> None:
    whole = np.arange(9996, dtype=np.uint32).reshape(3, 49, 68)
    for first, lengths in [
        ((0, 0, 0), (3, 49, 68)),
        ((1, 5, 0), (1, 40, 68)),
        ((0, 3, 60), (3, 7, 8)),
        ((2, 2, 2), (1, 1, 1)),
    ]:
        stored = StoredSlice(whole.shape, Slice(first, lengths))
        box = whole[tuple(slice(at, at + length) for at, length in zip(first, lengths, strict=True))]
        for target in (np.zeros(lengths, np.uint32), np.zeros(lengths, np.uint32, order="F")):
            reader = BatchReader(fs, batch_bytes)
            reader.add_slice("/a", 0, stored, target)
            reader.flush()
            assert np.array_equal(target, box)


def test_a_tensor_of_one_number(fs: LocalFiles) -> None:
    target = np.zeros((), np.uint32)
    reader = BatchReader(fs, 100)
    reader.add_slice("/a", 28, StoredSlice((), Slice((), ())), target)
    reader.flush()
    assert target == 7


def test_a_file_that_is_too_short_is_an_error(fs: LocalFiles) -> None:
    reader = BatchReader(fs, 100)
    reader.add("/a", [(39_990, memoryview(bytearray(20)))])
    with pytest.raises(Corrupt, match="/a was cut short: it has 10 of 20 bytes from 39990 on"):
        reader.flush()
