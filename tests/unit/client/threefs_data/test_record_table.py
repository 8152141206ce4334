import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_data import record_table
from threefs_data.record_table import PAGE_BYTES

from threefs.errors import Corrupt


def encoded(lengths: list[int], has_lengths: bool = True) -> bytes:
    return record_table.encode(np.arange(len(lengths), dtype="<u4").tobytes(), lengths, has_lengths)


def decoded(content: bytes, data_bytes: int, has_lengths: bool = True) -> list[list[int]]:
    pages = [memoryview(content)[at : at + PAGE_BYTES] for at in range(0, len(content), PAGE_BYTES)]
    rows = record_table.decode(pages, has_lengths, [data_bytes] * len(pages), ["x"] * len(pages))
    return [[int(value) for value in row] for row in rows]


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=400))
def test_samples_follow_one_another(lengths: list[int]) -> None:
    content = encoded(lengths)
    every = record_table.page_samples(True)
    assert len(content) == record_table.pages(len(lengths), True) * PAGE_BYTES
    starts = np.cumsum([4096, *lengths]).tolist()
    for number, row in enumerate(decoded(content, starts[-1])):
        expected = starts[number * every : (number + 1) * every + 1]
        assert row[every : every + len(expected)] == expected
        assert row[: len(expected) - 1] == list(range(number * every, number * every + len(expected) - 1))


@given(st.integers(1, 400))
def test_samples_of_one_length_have_checksums_only(samples: int) -> None:
    content = encoded([7] * samples, False)
    assert len(content) == record_table.pages(samples, False) * PAGE_BYTES == -(-samples // 127) * 512
    rows = decoded(content, 4096 + 7 * samples, False)
    assert [value for row in rows for value in row][:samples] == list(range(samples))


@pytest.mark.parametrize("has_lengths", [False, True])
def test_every_flipped_bit_is_noticed(has_lengths: bool) -> None:
    content = encoded([5, 5], has_lengths)
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match="page of the table"):
            decoded(bytes(changed), 4106, has_lengths)


def test_a_page_that_is_cut_short_is_noticed() -> None:
    with pytest.raises(Corrupt, match="cut short"):
        decoded(bytes(500), 4196)


def test_a_table_of_other_samples_is_refused() -> None:
    content = encoded([500] * 300)
    with pytest.raises(Corrupt, match="beyond"):
        decoded(content, 4096 + 200 * 500)
    with pytest.raises(Corrupt, match="beyond"):
        decoded(encoded([(1 << 30) + 1]), 1 << 40)
