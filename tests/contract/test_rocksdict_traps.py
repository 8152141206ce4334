"""What rocksdict does differently from what its interface suggests, and that the table does not fall for it.

If a test of the first kind fails after an upgrade, rocksdict was mended there and the table may become simpler.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, Options, Rdict, ReadOptions, WriteOptions

from threefs.errors import Corrupt
from threefs.kv.rocksdb_store import merge_at_once, open_store
from threefs.kv.table import Table


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Rdict]:
    opened = Rdict(str(tmp_path / "plain"), Options(raw_mode=True))
    yield opened
    opened.close()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A directory with 2,000 pairs in one sorted file, of which one block in the middle is damaged."""
    directory = tmp_path / "damaged"

    async def fill() -> None:
        table = await Table.open(directory)
        table.write({b"%06d" % number: b"v" * 100 for number in range(2000)})
        await table.close()

    asyncio.run(fill())
    plain = Rdict(str(directory), Options(raw_mode=True))
    plain.flush()
    plain.close()
    (file,) = directory.glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    file.write_bytes(content)
    return directory


def test_trap_1_iterators_of_a_snapshot_ignore_the_snapshot(store: Rdict) -> None:
    store[b"a"] = b"old"
    snapshot = store.snapshot()
    store[b"a"] = b"new"
    rows = snapshot.iter()
    rows.seek_to_first()
    assert rows.value() == b"new"
    assert snapshot[b"a"] == b"old"


async def test_trap_1_a_view_shows_one_moment(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "table")
    table.write({b"a": b"old", b"b": b"old"})
    view = table.view()
    table.write({b"a": b"new", b"b": None, b"c": b"new"})
    assert view.scan(b"a", b"z") == [(b"a", b"old"), (b"b", b"old")]
    assert view.scan(b"a", b"z", reverse=True) == [(b"b", b"old"), (b"a", b"old")]
    assert [view.get(b"a"), view.get(b"b"), view.get(b"c")] == [b"old", b"old", None]
    assert table.scan(b"a", b"z") == [(b"a", b"new"), (b"c", b"new")]
    del view
    await table.close()


def test_trap_2_the_lower_bound_of_an_iterator_is_taken_as_the_upper(store: Rdict) -> None:
    for key in (b"a", b"b", b"c"):
        store[key] = b""
    bounds = ReadOptions()
    bounds.set_iterate_lower_bound(b"b")
    rows = store.iter(bounds)
    rows.seek_to_first()
    assert rows.valid() and rows.key() == b"a"
    rows.next()
    assert not rows.valid()


async def test_trap_2_scans_keep_both_bounds(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "table")
    table.write({bytes([byte]): b"" for byte in b"abcd"})
    assert [key for key, _ in table.scan(b"b", b"d")] == [b"b", b"c"]
    assert [key for key, _ in table.scan(b"b", b"d", reverse=True)] == [b"c", b"b"]
    await table.close()


def test_trap_3_iteration_over_damage_ends_in_silence(damaged: Path) -> None:
    store = Rdict(str(damaged), Options(raw_mode=True))
    assert 0 < len(list(store.items())) < 2000
    store.close()


@pytest.mark.parametrize("reverse", [False, True])
async def test_trap_3_a_scan_over_damage_is_an_error(damaged: Path, reverse: bool) -> None:
    table = await Table.open(damaged)
    with pytest.raises(Corrupt):
        table.scan(b"", b"\xff", reverse=reverse)
    assert table.scan(b"", b"000005") == [(b"%06d" % number, b"v" * 100) for number in range(5)]
    with pytest.raises(Corrupt):
        for number in range(2000):
            table.view().get(b"%06d" % number)
    await table.close()


def another_thread_ran_during(action: Callable[[], None], attempts: int) -> bool:
    """Whether a second thread could run while one of `attempts` calls of `action` was under way."""
    turns = 0
    stopped = False

    def spin() -> None:
        nonlocal turns
        while not stopped:
            turns += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # from here on a thread runs until it lets go of the interpreter lock by itself
    thread = threading.Thread(target=spin)
    try:
        thread.start()
        for _ in range(attempts):
            seen = turns
            action()
            if turns != seen:
                return True
        return False
    finally:
        stopped = True
        sys.setswitchinterval(before)
        thread.join()


def test_trap_4_a_synchronous_write_stops_all_threads_and_flush_wal_does_not(store: Rdict) -> None:
    synced = WriteOptions()
    synced.sync = True

    def write_then_flush() -> None:
        store[b"a"] = b"1"
        store.flush_wal(True)

    assert not another_thread_ran_during(lambda: store.put(b"a", b"1", synced), attempts=50)
    assert another_thread_ran_during(write_then_flush, attempts=1000)


async def test_trap_4_the_loop_goes_on_while_a_flush_is_under_way(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()

    class SlowToFlush:
        """The store, with a flush that lasts until it is released."""

        def __init__(self, store: Rdict) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            return getattr(self._store, name)

        def flush_wal(self, sync: bool) -> None:
            assert sync
            started.set()
            assert release.wait(30)
            self._store.flush_wal(True)

    table = await Table.open(tmp_path / "table")
    table._store = SlowToFlush(table._store)  # type: ignore[assignment]
    table.write({b"a": b"1"})
    flushed = asyncio.create_task(table.flush())
    await asyncio.to_thread(started.wait, 30)
    table.write({b"b": b"2"})
    assert table.get(b"b") == b"2"
    assert not flushed.done() and table.durable == 0
    release.set()
    await flushed
    await table.close()
    assert table.durable == 2


def options_of(directory: Path) -> list[str]:
    """What the store in `directory` has said about its options since it was opened."""
    log = (directory / "LOG").read_text()
    return [name for name in ("filter_policy: bloomfilter", "filter_policy: nullptr") if name in log]


def with_filter() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    return options


def test_trap_5_a_store_that_exists_is_opened_with_other_options(tmp_path: Path) -> None:
    """Those of column families are read from the disk, without the parts that have no text, as the filter."""
    for expected in ("bloomfilter", "nullptr"):
        Rdict(str(tmp_path / "store"), with_filter()).close()
        assert options_of(tmp_path / "store") == [f"filter_policy: {expected}"]


def test_trap_5_a_store_has_its_own_options_at_each_open(tmp_path: Path) -> None:
    for _ in range(3):
        store = open_store(tmp_path / "store")
        assert options_of(tmp_path / "store") == ["filter_policy: bloomfilter"]
        assert store.property_int_value("rocksdb.block-cache-capacity") == 64 << 20
        merge_at_once(store, True)
        store.close()
    store = open_store(tmp_path / "store")
    for number in range(3):
        store.put(b"%d" % number, b"")
        store.flush()
        time.sleep(0.1)
    assert len(list((tmp_path / "store").glob("*.sst"))) == 3, "the store merges each new file, as on a full disk"
    store.close()


def cached_bytes(store: Rdict) -> int:
    return store.property_int_value("rocksdb.block-cache-usage") or 0


def test_stores_of_one_process_share_a_cache(tmp_path: Path) -> None:
    """A process has up to 99 targets, each with a store."""
    stores = [open_store(tmp_path / name) for name in ("a", "b")]
    stores[0].put(b"key", bytes(1000))
    stores[0].flush()
    before = cached_bytes(stores[1])
    assert stores[0].get(b"key")
    assert cached_bytes(stores[1]) > before
    for store in stores:
        store.close()
