import pytest
from threefs_meta import listing_cache as module
from threefs_meta.listing_cache import Contents
from threefs_meta.store.entry_columns import Columns


def columns(name: bytes) -> Columns:
    return Columns(name + b"\0", bytes(8), b"\1")


def test_only_under_the_token_it_was_found_with() -> None:
    contents = Contents()
    contents.put(7, 1, columns(b"a"))
    assert contents.get(7, 1) == columns(b"a") and contents.get(7, 2) is None and contents.get(8, 1) is None
    contents.put(7, 2, columns(b"b"))
    assert contents.get(7, 2) == columns(b"b") and contents.get(7, 1) is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = Contents()
    contents.put(0, 1, columns(b"a"))
    one = contents.size
    contents.put(0, 2, columns(b"b"))
    assert contents.size == one
    monkeypatch.setattr(module, "MOST_BYTES", 10 * one)
    for directory in range(20):
        contents.put(directory, 3, columns(b"c"))
        assert contents.size <= 10 * one
    assert [directory for directory in range(20) if contents.get(directory, 3) is not None] == list(range(10, 20))
