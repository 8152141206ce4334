from threefs_meta.listing_cache import ListingCache
from threefs_meta.store.entry_codec import EntryColumns


def columns(name: bytes) -> EntryColumns:
    return EntryColumns(name + b"\0", bytes(8), b"\1")


def test_only_under_the_token_it_was_found_with() -> None:
    cache = ListingCache()
    cache.put(7, 1, columns(b"a"))
    assert cache.get(7, 1) == columns(b"a") and cache.get(7, 2) is None and cache.get(8, 1) is None
    cache.put(7, 2, columns(b"b"))
    assert cache.get(7, 2) == columns(b"b") and cache.get(7, 1) is None


def test_memory_is_bounded() -> None:
    cache = ListingCache()
    cache.put(0, 1, columns(b"a"))
    one = cache.size
    cache.put(0, 2, columns(b"b"))
    assert cache.size == one
    cache.set_max_bytes(10 * one)
    for directory in range(20):
        cache.put(directory, 3, columns(b"c"))
        assert cache.size <= 10 * one
    assert [directory for directory in range(20) if cache.get(directory, 3) is not None] == list(range(10, 20))
    cache.set_max_bytes(2 * one)
    assert cache.size == 2 * one and cache.get(17, 3) is None and cache.get(18, 3) is not None
