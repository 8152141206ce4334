import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefs.checksums import crc32c
from threefs.env.buffers import MIN_BUFFER_BYTES, POISON, BufferPool, size_class
from threefs.env.disk import is_aligned


@given(st.integers(0, 1 << 30))
def test_sizes_are_powers_of_two_that_hold_what_was_asked_for(length: int) -> None:
    size = size_class(length)
    assert size >= length and size & (size - 1) == 0
    assert size == MIN_BUFFER_BYTES or size < 2 * length


def test_a_buffer_is_aligned_writable_and_used_again() -> None:
    pool = BufferPool()
    buffer = pool.take(5000)
    assert len(buffer) == 8192 and is_aligned(buffer)
    buffer[:3] = b"abc"
    assert crc32c(buffer[:3]) == crc32c(b"abc")
    pool.give(buffer)
    assert pool.take(8192) is buffer, "the pages are there already"
    assert pool.take(8192) is not buffer


def test_the_pool_is_bounded() -> None:
    pool = BufferPool(keep_bytes=3 * mmap.PAGESIZE)
    lent = [pool.take(mmap.PAGESIZE) for _ in range(10)]
    assert pool.lent == 10
    for buffer in lent:
        pool.give(buffer)
    assert pool.lent == 0
    again = [pool.take(mmap.PAGESIZE) for _ in range(10)]
    assert sum(any(one is other for other in lent) for one in again) == 3


def test_giving_a_buffer_twice_is_a_broken_invariant() -> None:
    pool = BufferPool()
    buffer = pool.take(1)
    pool.give(buffer)
    with pytest.raises(AssertionError, match="twice"):
        pool.give(buffer)


def test_a_part_of_a_buffer_is_not_the_buffer() -> None:
    pool = BufferPool()
    buffer = pool.take(5000)
    for foreign in (buffer[:5000], memoryview(bytearray(8192))):
        with pytest.raises(AssertionError, match="not of this pool"):
            pool.give(foreign)
    assert pool.lent == 1 and pool.lent_bytes == 8192


def test_what_came_back_is_poisoned_in_all_tests() -> None:
    pool = BufferPool()
    buffer = pool.take(4096)
    buffer[:3] = b"abc"
    pool.give(buffer)
    assert bytes(buffer) == bytes([POISON]) * 4096
    buffer[100] = 1  # by somebody who did not know
    with pytest.raises(AssertionError, match="written to after it came back"):
        pool.take(4096)
    kept = BufferPool(poison=False)
    buffer = kept.take(4096)
    buffer[:3] = b"abc"
    kept.give(buffer)
    assert bytes(buffer[:3]) == b"abc"
