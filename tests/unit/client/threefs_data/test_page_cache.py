import numpy as np
import pytest
from threefs_data.page_cache import PageCache


def starts(*pages: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    return np.array([[page, page + 1, page + 2] for page in pages], np.uint64)


def test_the_least_recently_used_page_goes() -> None:
    cache = PageCache(3, 100, 3 * 3 * 8)
    assert cache.capacity == 3
    assert cache.missing([1, 2, 3]) == [1, 2, 3]
    cache.insert([1, 2, 3], starts(1, 2, 3))
    assert cache.missing([1]) == []
    cache.insert([4], starts(4))
    assert cache.missing([1, 2, 3, 4]) == [2]
    assert cache.values[cache.rows([4, 1, 3])].tolist() == starts(4, 1, 3).tolist()
    assert len(cache) == 3


def test_one_page_is_kept_at_least_and_no_room_is_made_for_more_than_there_are() -> None:
    assert PageCache(1000, 10, 0).capacity == 1
    assert PageCache(1000, 10, 1 << 30).capacity == 10


def test_a_page_that_is_kept_twice_has_one_row() -> None:
    cache = PageCache(3, 100, 3 * 3 * 8)
    cache.insert([1], starts(1))
    cache.insert([1], starts(1))
    cache.insert([2], starts(2))
    assert cache.values[cache.rows([1, 2])].tolist() == starts(1, 2).tolist()


def test_pages_whose_insertion_was_broken_off_are_not_there() -> None:
    cache = PageCache(3, 100, 2 * 3 * 8)
    cache.insert([1, 2], starts(1, 2))
    with pytest.raises(ValueError, match="shape"):
        cache.insert([3], np.zeros((1, 7), np.uint64))
    assert cache.missing([1, 2, 3]) == [1, 2, 3]
    cache.insert([1, 2], starts(1, 2))
    assert cache.values[cache.rows([1, 2])].tolist() == starts(1, 2).tolist()
