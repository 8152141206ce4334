import numpy as np
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
