import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data.location import Location

from threefs.checksums import crc32c
from threefs.errors import Corrupt


def location(ranges: list[tuple[int, int]], crcs: list[int], chunk_bytes: int = 64) -> Location:
    starts, lengths = np.array(ranges, np.int64).reshape(-1, 2).T
    return Location(
        numbers=np.arange(len(ranges)),
        files=[f"file{index}" for index in range(len(ranges))],
        starts=starts,
        lengths=lengths,
        chunk_bytes=np.full(len(ranges), chunk_bytes),
        crcs=np.array(crcs, np.int64),
        file_name=lambda index: f"/file{index}",
    )


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=10))
def test_rows_cover_the_records_in_order_and_stay_within_chunks(ranges: list[tuple[int, int]]) -> None:
    rows = location(ranges, [0] * len(ranges)).rows()
    assert all(length == 0 or start // 64 == (start + length - 1) // 64 for _, start, length in rows)
    wanted = [(f"file{index}", at) for index, (start, size) in enumerate(ranges) for at in range(start, start + size)]
    assert [(file, at) for file, start, size in rows for at in range(start, start + size)] == wanted


def test_samples_are_checked_and_cut_from_the_buffer() -> None:
    where = location([(0, 3), (0, 0), (0, 3)], [crc32c(b"abc"), 0, crc32c(b"old")])
    content = b"abcold"
    assert where.nbytes == len(content)
    assert [bytes(sample) for sample in where.check(memoryview(content))] == [b"abc", b"", b"old"]
    for damaged, number in [(b"x" + content[1:], 0), (content[:-1] + b"x", 2)]:
        with pytest.raises(Corrupt, match=f"sample {number} in /file{number} does not match"):
            where.check(memoryview(damaged))
