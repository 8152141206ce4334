import asyncio
import errno
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict, RdictIter, ReadOptions

from tests.harness.clocks import SteppedClock
from threefs.env.sync_policy import QUICK_S, STALL_S, SyncPolicy
from threefs.errors import Corrupt, NoSpace, ThreefsError, Unavailable
from threefs.kv.table import Table
from threefs.kv.wal_recovery import MARK_KEY


class Failing:
    """A store of which one operation fails from now on."""

    def __init__(self, store: object, operation: str, message: str) -> None:
        self._store = store
        self._operation = operation
        self._message = message

    def __getattr__(self, name: str) -> object:
        if name == self._operation:
            return self._fail
        return getattr(self._store, name)

    def _fail(self, *_: object) -> None:
        raise Exception(self._message)


EIO = "IO error: While fdatasync: 000004.log: Input/output error"
ENOSPC = "IO error: No space left on device: While appending to file: 000004.log"


def quick_pace() -> SyncPolicy:
    """Of a log whose syncs have been quick for long."""
    sync_policy = SyncPolicy()
    for _ in range(100):
        sync_policy.record(0.0)
    assert sync_policy.on_loop
    return sync_policy


async def broken(directory: Path, operation: str, message: str, sync_policy: SyncPolicy | None = None) -> Table:
    table = await Table.open(directory, sync_policy=sync_policy)
    table.write({b"kept": b"1"})
    await table.flush()
    table._store = Failing(table._store, operation, message)  # type: ignore[assignment]
    return table


def refuses(table: Table, error: type[ThreefsError], *actions: Callable[[], object]) -> None:
    for action in actions:
        with pytest.raises(error):
            action()


async def test_concurrent_flushes_share_one_sync(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    syncs = 0
    store = table._store

    class Counting(Failing):
        def _fail(self, *_: object) -> None:
            nonlocal syncs
            syncs += 1
            store.flush_wal(True)

    table._store = Counting(store, "flush_wal", "")  # type: ignore[assignment]

    async def write(number: int) -> None:
        await table.flush(table.write({b"%d" % number: b""}))
        assert table.durable > number

    await asyncio.gather(*(write(number) for number in range(100)))
    assert table.durable == table.written == 100
    assert syncs == 1
    await table.flush()
    assert syncs == 1
    await table.close()


class Watched(Failing):
    """A store that notes which threads sync it. The next syncs take as long as `lasting` says, by its own clock."""

    def __init__(self, table: Table) -> None:
        super().__init__(table._store, "flush_wal", "")
        self.threads: list[int] = []
        self.lasting: list[float] = []
        self.release = threading.Event()
        self.release.set()
        self._time = SteppedClock(0.0)
        table._store = self  # type: ignore[assignment]
        table._clock = self._time

    def _fail(self, *_: object) -> None:
        assert self.release.wait(30)
        self.threads.append(threading.get_ident())
        self._time.advance(self.lasting.pop(0) if self.lasting else 0.0)
        self._store.flush_wal(True)  # type: ignore[attr-defined]


def test_a_single_writer_syncs_a_quick_log_on_the_loop_and_others_share(tmp_path: Path) -> None:
    async def main() -> None:
        table = await Table.open(tmp_path, sync_policy=quick_pace())
        store = Watched(table)

        async def write(number: int) -> None:
            await table.flush(table.write({b"%d" % number: b""}))
            assert table.durable > number

        for number in range(5):
            await write(number)
            await asyncio.sleep(0)  # as one call after the other comes
        assert len(store.threads) == 5
        await asyncio.gather(*(write(number) for number in range(5, 100)))
        assert len(store.threads) == 7, "the first did not know of the others"
        for number in range(100, 200, 10):
            await asyncio.gather(*(write(number + more) for more in range(10)))
        assert len(store.threads) == 17
        await write(200)
        await write(201)
        assert set(store.threads) == {threading.get_ident()}
        await table.close()

    asyncio.run(main())
    assert len(contents(tmp_path)) == 202


async def test_after_a_stall_the_log_is_synced_beside_the_loop(tmp_path: Path) -> None:
    table = await Table.open(tmp_path, sync_policy=quick_pace())
    store = Watched(table)
    store.lasting = [QUICK_S / 2, STALL_S]
    for number in range(2):
        await table.flush(table.write({b"%d" % number: b""}))
    assert set(store.threads) == {threading.get_ident()}
    store.release.clear()  # on the loop, nobody would set it again
    waits = asyncio.create_task(table.flush(table.write({b"2": b""})))
    for _ in range(20):
        await asyncio.sleep(0)
    assert table.get(b"0") == b""
    assert not waits.done()
    store.release.set()
    await waits
    assert store.threads[-1] != threading.get_ident()
    await table.close()


async def test_a_failed_sync_on_the_loop_fails_for_all_who_share_it(tmp_path: Path) -> None:
    table = await Table.open(tmp_path, sync_policy=quick_pace())
    store = Watched(table)

    async def write(number: int) -> None:
        await table.flush(table.write({b"%d" % number: b""}))

    await asyncio.gather(*(write(number) for number in range(3)))  # from now on they wait for each other
    table._store = Failing(store, "flush_wal", EIO)  # type: ignore[assignment]
    found = await asyncio.gather(*(write(number) for number in range(3)), return_exceptions=True)
    assert [type(error) for error in found] == [Unavailable] * 3
    assert table.durable == 3
    await table.close()


async def test_a_cancelled_wait_does_not_disturb_the_others(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    table.write({b"a": b""})
    first, second = asyncio.create_task(table.flush()), asyncio.create_task(table.flush())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert table.durable == 1
    await table.close()


@pytest.mark.parametrize("sync_policy", [None, quick_pace()])
@pytest.mark.parametrize("operation", ["write", "flush_wal"])
async def test_after_an_io_error_everything_is_refused(
    tmp_path: Path, operation: str, sync_policy: SyncPolicy | None
) -> None:
    table = await broken(tmp_path, operation, EIO, sync_policy)
    view = table.view()
    with pytest.raises(Unavailable):
        table.write({b"a": b"1"})
        await table.flush()
    refuses(table, Unavailable, lambda: table.write({b"b": b"1"}), lambda: table.get(b"kept"), table.view)
    refuses(table, Unavailable, lambda: view.get(b"kept"), lambda: view.scan(b"", b"z"))
    assert isinstance(table.failure, Unavailable)
    await table.close()


@pytest.mark.parametrize("sync_policy", [None, quick_pace()])
@pytest.mark.parametrize("operation", ["write", "flush_wal"])
async def test_on_a_full_disk_only_reads_go_on(tmp_path: Path, operation: str, sync_policy: SyncPolicy | None) -> None:
    table = await broken(tmp_path, operation, ENOSPC, sync_policy)
    with pytest.raises(NoSpace):
        table.write({b"a": b"1"})
        await table.flush()
    refuses(table, NoSpace, lambda: table.write({b"b": b"1"}))
    assert table.get(b"kept") == b"1"
    assert (b"kept", b"1") in table.scan(b"", b"z")
    await table.close()


async def test_a_table_is_open_once(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    with pytest.raises(Unavailable, match="in use"):
        await Table.open(tmp_path)
    await table.close()
    await (await Table.open(tmp_path)).close()


def log_of(directory: Path) -> Path:
    (log,) = directory.glob("*.log")
    return log


@pytest.fixture(params=["", "with room in the log"])
def sync_policy(request: pytest.FixtureRequest) -> SyncPolicy | None:
    return quick_pace() if request.param else None


def copies_with_log_sizes(
    source: Path, sync_policy: SyncPolicy | None, writes: int, flush_after: int = -1
) -> list[int]:
    """Fill a table, and return how long its log was before the first write and after each. "crashed" is a copy."""
    sizes: list[int] = []

    def size() -> int:
        return len(log_of(source).read_bytes().rstrip(b"\0"))  # no record ends with one

    async def main() -> None:
        table = await Table.open(source, sync_policy=sync_policy)
        sizes.append(size())
        for number in range(writes):
            table.write({b"%03d" % number: b"v" * 50, b"last": b"%d" % number})
            sizes.append(size())
            if number == flush_after:
                await table.flush()
        shutil.copytree(source, source.parent / "crashed")
        await table.close()

    asyncio.run(main())
    return sizes


def contents(directory: Path) -> dict[bytes, bytes]:
    async def main() -> dict[bytes, bytes]:
        table = await Table.open(directory)
        found = dict(table.scan(b"", b"\xff"))
        await table.close()
        return found

    return asyncio.run(main())


def expected(writes: int) -> dict[bytes, bytes]:
    found = {b"%03d" % number: b"v" * 50 for number in range(writes)}
    return found | {b"last": b"%d" % (writes - 1)} if writes else found


@pytest.mark.slow
def test_a_log_that_was_cut_anywhere_keeps_all_writes_before_the_cut(
    tmp_path: Path, sync_policy: SyncPolicy | None
) -> None:
    sizes = copies_with_log_sizes(tmp_path / "table", sync_policy, 8)
    assert sizes == sorted(set(sizes))
    for cut in range(sizes[0], sizes[-1] + 1, 17):
        shutil.copytree(tmp_path / "crashed", tmp_path / "cut")
        with log_of(tmp_path / "cut").open("r+b") as log:
            log.truncate(cut)
        whole = sum(size <= cut for size in sizes[1:])
        assert contents(tmp_path / "cut") == expected(whole), cut
        shutil.rmtree(tmp_path / "cut")


def test_a_last_write_of_zeros_is_dropped(tmp_path: Path, sync_policy: SyncPolicy | None) -> None:
    """The length of a file can reach the disk before its content."""
    sizes = copies_with_log_sizes(tmp_path / "table", sync_policy, 8)
    with log_of(tmp_path / "crashed").open("r+b") as log:
        log.seek(sizes[-2])
        log.write(b"\0" * (sizes[-1] - sizes[-2]))
    assert contents(tmp_path / "crashed") == expected(7)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 4, 7, 20, 80])
def test_a_torn_last_write_is_dropped(tmp_path: Path, kept: int, sync_policy: SyncPolicy | None) -> None:
    """A power cut can leave the beginning of a record, and zeros where its other pages should be."""
    sizes = copies_with_log_sizes(tmp_path / "table", sync_policy, 8)
    with log_of(tmp_path / "crashed").open("r+b") as log:
        log.seek(sizes[-2] + kept)
        log.write(b"\0" * (sizes[-1] - sizes[-2] - kept))
    assert contents(tmp_path / "crashed") == expected(7)
    assert contents(tmp_path / "crashed") == expected(7)


@pytest.mark.parametrize("damaged", range(8))
def test_damage_is_cut_off_only_where_nothing_was_flushed(
    tmp_path: Path, damaged: int, sync_policy: SyncPolicy | None
) -> None:
    sizes = copies_with_log_sizes(tmp_path / "table", sync_policy, 8, flush_after=4)
    with log_of(tmp_path / "crashed").open("r+b") as log:
        log.seek(sizes[damaged] + 20)
        log.write(b"\xff")
    if damaged <= 4:
        with pytest.raises(Corrupt):
            contents(tmp_path / "crashed")
    else:
        assert contents(tmp_path / "crashed") == expected(damaged)


async def test_the_mark_of_flushes_is_not_shown(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    for number in range(3):
        table.write({b"%d" % number: b""})
        await table.flush()
    keys = [b"0", b"1", b"2"]
    assert [key for key, _ in table.scan(b"", b"\xff" * 40)] == keys
    assert [key for key, _ in table.scan(b"", b"\xff" * 40, reverse=True)] == keys[::-1]
    assert [key for key, _ in table.scan(b"", b"\xff" * 40, 1, reverse=True)] == keys[2:]
    with pytest.raises(AssertionError):
        table.write({MARK_KEY: b""})
    await table.close()


async def test_many_keys_are_found_in_whatever_order_they_are_asked_for(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    there = [b"%03d" % number for number in range(300) if number % 50 and number != 299]
    table.write({key: b"v" + key for key in there})
    all_keys = [b"%03d" % number for number in range(300)]
    shuffled = random.Random(4).sample(all_keys, len(all_keys))
    orders = [all_keys, all_keys[::-1], shuffled, all_keys[20:] * 2, [b"000"] * 30, [b"~"] * 30, []]
    view = table.view()
    for keys in orders:
        assert view.get_many(keys) == [b"v" + key if key in there else None for key in keys]
    await table.close()


class Impatient:
    """A store whose iterators fail when they step over many removed keys."""

    def __init__(self, store: Rdict) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def iter(self, options: ReadOptions | None = None) -> RdictIter:
        options = options or ReadOptions()
        options.set_max_skippable_internal_keys(100)
        return self._store.iter(options)


async def test_what_was_removed_beside_a_key_or_a_range_is_not_stepped_over(tmp_path: Path) -> None:
    """A directory may have had very many names."""
    table = await Table.open(tmp_path)
    names = [b"name-%04d" % number for number in range(1000)]
    table.write(dict.fromkeys([b"a", *names, b"z"], b""))
    table.write(dict.fromkeys(names))
    table._store = Impatient(table._store)  # type: ignore[assignment]
    view = table.view()
    assert view.get(b"name") is None
    assert view.scan(b"a", b"name-") == [(b"a", b"")]
    assert view.scan(b"a", b"name-", reverse=True) == [(b"a", b"")]
    assert view.scan(b"name", b"name-") == []
    await table.close()


async def test_a_view_stays_as_it_is(tmp_path: Path) -> None:
    table = await Table.open(tmp_path)
    table.write({b"a": b"1", b"b": b"1"})
    view = table.view()
    shown = [(b"a", b"1"), (b"b", b"1")]

    def check() -> None:
        assert [view.get(key) for key in (b"a", b"b", b"c")] == [b"1", b"1", None]
        assert view.scan(b"a", b"z") == shown
        assert view.scan(b"a", b"z", reverse=True) == shown[::-1]
        assert view.scan(b"a", b"b", limit=1) == shown[:1]

    check()
    table.write({b"a": b"2", b"b": None, b"c": b"2"})
    check()
    assert table.view().scan(b"a", b"z") == [(b"a", b"2"), (b"c", b"2")]
    await table.close()


async def test_a_mark_follows_once_no_write_does(tmp_path: Path) -> None:
    table = await Table.open(tmp_path, sync_policy=quick_pace())
    for number in range(50):
        table.write({b"%d" % number: b""})
        last = table._store.latest_sequence_number()  # on a busy machine the mark is there when the flush returns
        await table.flush()
        await asyncio.sleep(0)
    while table._store.latest_sequence_number() == last:
        await asyncio.sleep(0.001)
    assert table._store.latest_sequence_number() == last + 1
    await table.close()


class Asked:
    """A store that counts the single keys which it is asked for."""

    def __init__(self, store: Rdict) -> None:
        self._store = store
        self.keys = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def get(self, key: bytes) -> object:
        self.keys += 1
        return self._store.get(key)


@pytest.mark.parametrize("current", [True, False])
async def test_many_keys_that_are_not_there_are_not_all_looked_for_in_order(current: bool, tmp_path: Path) -> None:
    """Each might step over very many removed ones."""
    table = await Table.open(tmp_path)
    names = [b"name-%03d" % number for number in range(0, 300, 2)]
    table.write(dict.fromkeys(names[50:], b"v"))
    store = table._store = Asked(table._store)  # type: ignore[assignment]
    view = table.view()
    if not current:
        table.write({names[60]: None})
    asked = [b"name-%03d" % number for number in range(300)]
    assert view.get_many(asked) == [b"v" if name in names[50:] else None for name in asked]
    assert store.keys > 200 if current else not store.keys
    await table.close()


async def test_its_generation_rises_with_what_is_durable_and_tells_an_old_copy(tmp_path: Path) -> None:
    table = await Table.open(tmp_path / "table")
    seen = [table.durable_change]
    for number in range(5):
        table.write({b"%d" % number: b"x", b"other": b"%d" % number})
        assert table.durable_change == seen[-1], "it is not durable yet"
        await table.flush()
        seen.append(table.durable_change)
        if number == 2:
            shutil.copytree(tmp_path / "table", tmp_path / "copy")
    assert seen == sorted(set(seen))
    await table.close()
    table = await Table.open(tmp_path / "table")
    assert table.durable_change >= seen[-1], "also after a restart"
    await table.close()
    copy = await Table.open(tmp_path / "copy")
    assert seen[3] <= copy.durable_change < seen[5]
    await copy.close()


@pytest.mark.parametrize(
    ("work", "failing"),
    [
        ("room_to_open", "table.needed_bytes"),
        ("shorten_log", "rocksdb_store._log_bytes"),
        ("reopen", "rocksdb_store.os.statvfs"),
        ("reopen", "rocksdb_store.os.fsync"),
        ("open", "rocksdb_store.os.fsync"),
        ("open", "rocksdb_store.unreadable"),
    ],
)
async def test_files_that_cannot_be_looked_at_are_an_error_like_others(
    work: str, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the process: a disk that has failed gives such errors, also before a write has met one."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    table = await Table.open(tmp_path)
    if work == "reopen":
        table.failure = NoSpace("full")
    with monkeypatch.context() as patched:
        patched.setattr(f"threefs.kv.{failing}", fail)
        with pytest.raises(Unavailable, match="Input/output error"):
            await (Table.open(tmp_path / "another") if work == "open" else getattr(table, work)())
    await table.close()
