from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_checkpoint.staging import StagingArea

from threefs.errors import InvalidArgument

CHUNK = 64


def filled(area: StagingArea, count: int) -> None:
    for number in range(count):
        buffer = area.buffer()
        buffer[:2] = number.to_bytes(2, "big")
        area.put(number, buffer, 2)
    area.end()


@given(st.integers(2, 6), st.lists(st.integers(0, 20), min_size=1, max_size=3), st.integers(1, 4))
def test_chunks_pass_in_order_and_memory_never_exceeds_the_limit(buffers: int, saves: list[int], batch: int) -> None:
    area = StagingArea(buffers * CHUNK + 7, CHUNK)
    with ThreadPoolExecutor(1) as other:
        for count in saves:
            area.begin()
            filling = other.submit(filled, area, count)
            seen = []
            for chunks in area.batches(batch * CHUNK):
                assert 1 <= len(chunks) <= batch
                seen += [(chunk.number, int.from_bytes(chunk.content, "big")) for chunk in chunks]
                assert area.peak_bytes <= buffers * CHUNK
            filling.result()
            assert seen == [(number, number) for number in range(count)]


def test_what_fits_is_copied_before_anything_is_written() -> None:
    area = StagingArea(4 * CHUNK, CHUNK)
    area.begin()
    with ThreadPoolExecutor(1) as other:
        first = other.submit(lambda: next(area.batches(CHUNK)))
        for number in range(4):
            area.put(number, area.buffer(), 1)
        assert not first.done()
        area.end()
        assert first.result()[0].number == 0


def test_what_is_discarded_gives_its_memory_back() -> None:
    area = StagingArea(2 * CHUNK, CHUNK)
    with ThreadPoolExecutor(1) as other:
        for _ in range(3):
            area.begin()
            filling = other.submit(filled, area, 10)
            area.discard()
            filling.result()
    assert area.peak_bytes == 2 * CHUNK


def test_an_area_of_one_chunk_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="two chunks of 64 bytes"):
        StagingArea(127, CHUNK)


def test_a_chunk_that_there_is_no_memory_for_is_not_counted() -> None:
    area = StagingArea(1 << 62, 1 << 60)
    area.begin()
    with pytest.raises(MemoryError):
        area.buffer()
    area.end()
    area.discard()
    area.begin()
    assert not area.peak_bytes
