"""A store that has failed is opened again once the reason is gone."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.chain_harness import until
from tests.harness.small_disk import small_disk as mounted_disk
from threefs import background
from threefs.errors import Corrupt, MaybeCommitted, NoSpace, ThreefsError, Unavailable
from threefs.kv import recovering_engine
from threefs.kv.recovering_engine import RecoveringEngine
from threefs.kv.rocks import RocksEngine
from threefs.kv.wal_recovery import KEPT

#: Clients read these messages: no path of the server is in them.
OF_NO_PATH = "^[^/]+$"


class Failing:
    """A RocksDB with something that fails."""

    def __init__(self, engine: RecoveringEngine, **fails: Exception) -> None:
        assert engine._engine is not None
        self._store = engine._engine._table._store
        self._fails = fails
        engine._engine._table._store = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> object:
        return self._fail if name in self._fails else getattr(self._store, name)

    def _fail(self, *_: object) -> None:
        raise next(iter(self._fails.values()))


async def put(engine: RecoveringEngine, key: bytes) -> None:
    tx = engine.begin()
    tx.set(key, b"1")
    await tx.commit()


async def keys(engine: RecoveringEngine) -> list[bytes]:
    return [key for key, _ in await engine.begin().get_range(b"", b"\xff")]


def recovers(engine: RecoveringEngine) -> Callable[[], bool]:
    return lambda: engine._engine is not None and engine._engine.failure is None


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["write", "flush_wal", "get", "iter"])
async def test_after_an_error_of_the_system_it_works_again(fails: str, tmp_path: Path) -> None:
    with capture_logs():
        engine = await RecoveringEngine.open(tmp_path / "store")
        await put(engine, b"a")
        old = engine.begin()
        await old.get(b"a")
        Failing(engine, **{fails: Exception("IO error: Too many open files")})
        tx = None
        with pytest.raises(ThreefsError, match=OF_NO_PATH):
            tx = engine.begin()
            await tx.get(b"b")
            tx.set(b"b", b"1")
            await tx.commit()
        old.set(b"late", b"1")
        with pytest.raises(ThreefsError):  # it belongs to the time before
            await old.commit()
        del old, tx  # while they are held the old table cannot be let go of
        await until(recovers(engine))
        await put(engine, b"c")
        assert set(await keys(engine)) - {b"b"} == {b"a", b"c"}, "b was never acknowledged"
        assert b"late" not in await keys(engine)
        await engine.close()


@pytest.mark.slow
async def test_a_store_that_cannot_be_opened_again_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture_logs():
        deaths: list[BaseException | None] = []
        background.on_death(lambda name, error: deaths.append(error))
        engine = await RecoveringEngine.open(tmp_path / "store")

        async def fails(*_: object, **__: object) -> None:
            raise Unavailable("the disk is gone")

        monkeypatch.setattr(recovering_engine, "_MAX_REOPEN_S", 0.1)
        monkeypatch.setattr(RocksEngine, "open", fails)
        Failing(engine, flush_wal=Exception("IO error"))
        with pytest.raises(MaybeCommitted):
            await put(engine, b"a")
        await until(lambda: bool(deaths))
        assert "cannot be opened again: the disk is gone" in str(deaths[0])
        with pytest.raises(Unavailable, match="is being opened again"):
            engine.begin()
        await engine.close()


async def fill_and_damage(directory: Path) -> None:
    """Fill a store with so many sorted files that they are merged as soon as it is open. One has a damaged block."""
    engine = await RocksEngine.open(directory, merges=False)
    for number in range(5):
        tx = engine.begin()
        for name in range(200):
            tx.set(b"%04d" % (10 * name + number), os.urandom(300))
        await tx.commit()
        engine.table._store.flush()
    await engine.close()
    damaged = min(directory.glob("*.sst"))
    content = bytearray(damaged.read_bytes())
    content[20_000] ^= 1
    damaged.write_bytes(content)


@pytest.mark.slow
async def test_a_damaged_file_of_a_store_does_not_stop_its_changes(tmp_path: Path) -> None:
    with capture_logs() as logs:
        await fill_and_damage(tmp_path / "store")
        for start in range(2):
            engine = await RecoveringEngine.open(tmp_path / "store")
            with contextlib.suppress(ThreefsError):
                for number in range(100):  # until the merge has met it
                    await put(engine, b"old %d %d" % (start, number))
                    await asyncio.sleep(0.01)
            await until(recovers(engine))
            for number in range(6):
                await put(engine, b"new %d %d" % (start, number))
                engine.table._store.flush()
            await asyncio.sleep(1)
            assert engine._engine is not None and engine._engine.failure is None
            with pytest.raises(Corrupt):
                await keys(engine)
            tx = engine.begin()
            assert await tx.get(b"new 0 5") == b"1" and await tx.get(b"0000") is not None
            del tx
            await engine.close()
        assert sum("restore it from a backup" in log["event"] for log in logs) == 2


async def test_while_a_damaged_store_takes_no_changes_it_is_read(tmp_path: Path) -> None:
    """Callers take a damaged record for what it is, so an error of changes must not look like one."""
    with capture_logs():
        engine = await RecoveringEngine.open(tmp_path / "store")
        await put(engine, b"a")
        Failing(engine, write=Exception("Corruption: block checksum mismatch"))
        with pytest.raises(Unavailable, match=OF_NO_PATH):
            await put(engine, b"b")
        assert await keys(engine) == [b"a"]
        with pytest.raises(Unavailable, match=OF_NO_PATH):
            await put(engine, b"c")
        await until(recovers(engine))
        await put(engine, b"d")
        assert await keys(engine) == [b"a", b"d"]
        await engine.close()


@pytest.mark.slow
async def test_a_store_that_fails_by_damage_without_merges_ends_the_process(tmp_path: Path) -> None:
    with capture_logs():
        deaths: list[BaseException | None] = []
        background.on_death(lambda name, error: deaths.append(error))
        engine = await RecoveringEngine.open(tmp_path / "store")
        for _ in range(2):
            await until(recovers(engine))
            Failing(engine, flush_wal=Exception("Corruption: no end of it"))
            with pytest.raises(MaybeCommitted):
                await put(engine, b"a")
        await until(lambda: bool(deaths))
        assert "also without merging its files" in str(deaths[0])
        await engine.close()


@pytest.mark.slow
async def test_a_sector_that_cannot_be_read_is_damage_of_what_lies_there(tmp_path: Path) -> None:
    """To open the store again would not help: it would fail again with the next look at that record."""
    unreadable = "IO error: While pread offset 8192 len 4096: /data/kv/000012.sst: Input/output error"
    with capture_logs():
        engine = await RecoveringEngine.open(tmp_path / "store")
        await put(engine, b"a")
        Failing(engine, get=Exception(unreadable))
        with pytest.raises(Corrupt, match=r" 000012\.sst: "):
            await engine.begin().get(b"a")
        assert engine._engine is not None and engine._engine.failure is None
        Failing(engine, write=Exception(unreadable))  # a merge has met it
        with pytest.raises(Unavailable):
            await put(engine, b"b")
        await until(recovers(engine))
        assert not engine._merges
        await put(engine, b"c")
        await engine.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "16m") as disk:
        yield disk


@pytest.mark.slow
async def test_a_full_disk_can_be_read_and_takes_writes_when_there_is_room(small_disk: Path) -> None:
    with capture_logs():
        engine = await RecoveringEngine.open(small_disk / "store")
        number = 0
        with pytest.raises((NoSpace, MaybeCommitted)):
            while True:
                tx = engine.begin()
                tx.set(b"%06d" % number, os.urandom(50_000))
                await tx.commit()
                number += 1
        await asyncio.sleep(1.2)
        assert len(await keys(engine)) in (number, number + 1)
        with pytest.raises(NoSpace, match=OF_NO_PATH):
            await put(engine, b"z")
        remount = ["mount", "-o", "remount,size=64m", str(small_disk)]
        await asyncio.to_thread(subprocess.run, remount, check=True)
        await until(recovers(engine))
        await put(engine, b"z")
        assert len(await keys(engine)) in (number + 1, number + 2)
        await engine.close()


@pytest.mark.slow
async def test_logs_that_are_kept_for_backups_give_way_on_a_full_disk(small_disk: Path) -> None:
    with capture_logs():
        engine = await RecoveringEngine.open(small_disk / "store")

        async def write(count: int) -> None:
            for _ in range(count):
                tx = engine.begin()
                tx.set(b"same", os.urandom(100_000))
                await tx.commit()

        await write(115)
        engine.table._store.flush()  # the log goes to those that are kept
        assert list((small_disk / "store" / KEPT).iterdir())
        with contextlib.suppress(NoSpace, MaybeCommitted):  # unless they have given way before
            await write(115)
        await until(recovers(engine))
        await put(engine, b"z")
        assert await keys(engine) == [b"same", b"z"]
        await engine.close()


@pytest.mark.slow
async def test_removals_have_a_reserve_of_the_disk(tmp_path: Path) -> None:
    """As the metadata service does, it adds nothing while the rest of the disk is the reserve. What it adds before
    fills the disk with sorted files: logs give way to them."""
    with mounted_disk(tmp_path / "disk", "64m") as disk, capture_logs():
        engine = await RecoveringEngine.open(disk / "store")
        number = 0
        while not engine.removals_only:
            tx = engine.begin()
            for _ in range(10):
                tx.set(b"%06d" % number, os.urandom(10_000))
                number += 1
            await tx.commit()
            await asyncio.sleep(0.02)
        assert not engine.full and number * 10_000 > 12 << 20
        for first in range(0, number, 5):
            tx = engine.begin()
            for one in range(first, min(first + 5, number)):
                tx.clear(b"%06d" % one)
            tx.set(b"removal of %06d" % first, bytes(500))
            await tx.commit()
        engine.table._store.compact_range(None, None)
        await until(lambda: not engine.removals_only)
        assert not engine.full
        await engine.close()


@pytest.mark.slow
async def test_the_reserve_is_back_after_removals_without_further_changes(tmp_path: Path) -> None:
    """The records of removals are few files, too few for a merge of their own. A store that takes only removals gets no
    others."""
    with mounted_disk(tmp_path / "disk", "96m") as disk, capture_logs():
        engine = await RecoveringEngine.open(disk / "store")

        async def change(numbers: range, size: int) -> None:
            tx = engine.begin()
            for number in numbers:
                tx.set(b"%012d" % number, os.urandom(size)) if size else tx.clear(b"%012d" % number)
            await tx.commit()
            await asyncio.sleep(0.001)

        number = 0
        while not engine.removals_only:
            await change(range(number, number + 128), 300)
            number += 128
            if shutil.disk_usage(disk).free < 60 << 20:  # no more between two looks than the reserve is for
                await asyncio.sleep(0.02)
        for first in range(0, number, 128):
            await change(range(first, first + 128), 0)
        await until(lambda: not engine.removals_only)
        await asyncio.sleep(2)
        assert not engine.removals_only and not engine.full
        await engine.close()
