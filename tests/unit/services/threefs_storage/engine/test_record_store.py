from collections.abc import Mapping
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.record_store import RecordStore, live_version

from tests.harness.simulated.record_table import SimTable, open_table
from tests.harness.simulated_disk import new_disk, new_table, simulate
from threefs.errors import Corrupt, NoSpace
from threefs.ids import ChunkId
from threefs.kv.table import Table


def record(number: int, removed: bool = False) -> Record:
    return Record(committed=Version(number, 1, 0, 0, None, 4096, b"", removed))


def chunk(number: int) -> ChunkId:
    return ChunkId(5, number)


def fresh(cached_records: int = 4) -> tuple[RecordStore, SimTable]:
    table = new_table()
    return RecordStore(table, cached_records), table


def test_every_write_is_seen_at_once_with_a_cache_of_any_size() -> None:
    for cached in (1, 4, 1000):
        store, _ = fresh(cached)
        for round_ in range(3):
            for number in range(20):
                store.write({chunk(number): record(100 * round_ + number)})
                assert store.get(chunk(number // 2)) == record(100 * round_ + number // 2)
        store.write({chunk(3): None})
        assert store.get(chunk(3)) is None
        assert store.get(chunk(99)) is None


def test_the_cache_is_bounded_and_a_hit_does_not_touch_the_table() -> None:
    store, table = fresh(8)
    for number in range(100):
        store.write({chunk(number): record(number)})
    assert len(store._young) + len(store._old) <= 8
    assert store.get(chunk(99)) is store.get(chunk(99))
    table.write({chunk(99).key(): b"changed behind its back"})
    assert store.get(chunk(99)) == record(99)


def test_a_damaged_record_is_an_error_each_time() -> None:
    store, table = fresh()
    table.write({chunk(1).key(): b"not a record"})
    for _ in range(2):
        with pytest.raises(Corrupt):
            store.get(chunk(1))


def test_a_cached_record_that_is_damaged_in_the_table_stays_and_is_written_again() -> None:
    store, table = fresh()
    store.write({chunk(1): record(1)})
    table.write({chunk(1).key(): b"not a record"})
    assert store.stored_record(chunk(1)) is None and store.unreadable(5) == [chunk(1)]
    assert store.inventory(None, 9) == [(chunk(1), None)]
    assert store.get(chunk(1)) == record(1)
    assert store.rewrite_damaged(chunk(1)) and not store.rewrite_damaged(chunk(1))
    assert store.stored_record(chunk(1)) == record(1)
    table.write({chunk(2).key(): b"not a record"})
    with pytest.raises(Corrupt):
        store.rewrite_damaged(chunk(2))


def test_scans_go_over_any_number_of_pages() -> None:
    store, _ = fresh()
    store.write({chunk(number): record(number) for number in range(1300)})
    rows = list(store.scan(chunk(3).key(), chunk(1299).key()))
    assert rows == [(chunk(number), record(number)) for number in range(3, 1299)]


def test_the_last_chunk_skips_tombstones() -> None:
    store, _ = fresh()
    begin, end = chunk(0).key(), chunk(10_000).key()
    assert store.last(begin, end) is None
    store.write({chunk(number): record(1, removed=number > 4) for number in range(100)})
    assert store.last(begin, end) == (chunk(4), record(1))
    store.write({chunk(number): record(1, removed=True) for number in range(100)})
    assert store.last(begin, end) is None


def test_durability_is_that_of_the_table() -> None:
    async def main() -> None:
        store = RecordStore(await open_table(new_disk(), Path("/records")), 4)
        number = store.write({chunk(1): record(1)})
        assert store.durable < number
        await store.flush(number)
        assert store.durable == number
        assert store.failure is None

    simulate(main())


def test_living() -> None:
    assert live_version(None) is None
    assert live_version(Record()) is None
    assert live_version(record(1, removed=True)) is None
    assert live_version(record(1)) == record(1).committed


def test_what_found_no_room_is_kept_before_any_other_change_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = RecordStore(await open_table(new_disk(), Path("/records")), 4)
        await store.keep_note("chain", b"one")
        assert store.durable == 1 and store.note("chain") == b"one"
        table = store._table
        table.failure = NoSpace("full")
        with pytest.raises(NoSpace):
            await store.keep_note("chain", b"two")
        with pytest.raises(NoSpace):
            await store.keep_note("chain", b"three")
        assert store.note("chain") == b"one"
        order: list[bytes] = []
        write = table.write

        def watched(changes: Mapping[bytes, bytes | None]) -> int:
            order.extend(value or b"" for key, value in changes.items() if key.endswith(b"chain"))
            return write(changes)

        monkeypatch.setattr(table, "write", watched)
        await store.reopen()
        assert store.note("chain") == b"three" and order == [b"three"] and store.durable == table.written
        await store.keep_note("chain", b"four")
        table.failure = NoSpace("full")
        await store.reopen()
        assert order == [b"three", b"four"], "once"

    simulate(main())


@pytest.mark.parametrize("kept", ["now", "before the start", "after a full disk"])
def test_a_kept_note_is_told_also_when_the_table_has_failed(kept: str) -> None:
    """A manager whose store was restored waits for the version of its chain that each target keeps. An older one would
    let a target serve that was put out of the chain since."""

    async def main() -> None:
        disk = new_disk()
        store = RecordStore(await open_table(disk, Path("/records")), 4)
        await store.keep_note("chain", b"one")
        if kept == "before the start":
            store = RecordStore(await open_table(disk, Path("/records")), 4)
        elif kept == "after a full disk":
            store._table.failure = NoSpace("full")
            with pytest.raises(NoSpace):
                await store.keep_note("chain", b"two")
            await store.reopen()
        store.put_note("another", b"not durable")
        store._table.failure = Corrupt("lost changes")
        assert store.note("chain") == (b"two" if kept == "after a full disk" else b"one")
        with pytest.raises(Corrupt):
            store.note("another")

    simulate(main())


async def test_a_kept_note_is_told_also_when_the_table_is_closed(tmp_path: Path) -> None:
    """One that is damaged, and could not be opened again yet."""
    table = await Table.open(tmp_path)
    store = RecordStore(table, 4)
    await store.keep_note("chain", b"one")
    await store.close()
    assert store.note("chain") == b"one" == store.note("chain")


def test_a_note_that_comes_while_an_older_one_is_saved_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to be there before any other change, also where the disk is full once more before it is durable."""

    async def main() -> None:
        store = RecordStore(await open_table(new_disk(), Path("/records")), 4)
        table = store._table
        flush = table.flush
        table.failure = NoSpace("full")
        with pytest.raises(NoSpace):
            await store.keep_note("chain", b"one")

        async def fill_again(number: int | None = None) -> None:
            await flush(number)
            table.failure = NoSpace("full")
            with pytest.raises(NoSpace):
                await store.keep_note("chain", b"two")

        with monkeypatch.context() as patched:
            patched.setattr(table, "flush", fill_again)
            await store.reopen()
        await store.reopen()
        assert store.note("chain") == b"two"

    simulate(main())


@pytest.mark.parametrize("what", ["record", "note", "kept note"])
def test_a_full_disk_is_reported_whatever_is_written(what: str) -> None:
    """Otherwise nobody opens the table again when there is room, before a client's write has failed."""

    async def main() -> None:
        disk = new_disk()
        table = await open_table(disk, Path("target"))
        store = RecordStore(table, 4)
        reported: list[Exception] = []
        store.on_failure = reported.append
        disk.quota_bytes = disk.capacity_bytes - disk.free_bytes()
        with pytest.raises(NoSpace):
            if what == "record":
                store.write({chunk(1): record(1)})
            elif what == "note":
                store.put_note("name", b"value")
            else:
                await store.keep_note("name", b"value")
        assert [type(error) for error in reported] == [NoSpace]

    simulate(main())
