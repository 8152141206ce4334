import asyncio
from pathlib import Path
from typing import Any

import pytest
from threefs_backup.restore import RestorePoint, find_restore_point, restore

from tests.harness.backups import Source, restored
from tests.harness.bad_sectors import cannot_be_read
from tests.harness.clocks import SteppedClock
from threefs.env.clock import CLOCK
from threefs.errors import AlreadyExists, Conflict, Corrupt, MaybeCommitted, NotFound
from threefs.kv import dump
from threefs.kv.dump import KEYS_END
from threefs.kv.engine_api import Pair
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import in_part, read_mark, settle
from threefs.kv.transaction import BufferedTransaction


async def backed_up(tmp_path: Path) -> tuple[list[tuple[int, dict[bytes, bytes]]], Path]:
    """What the source was at some moments, by the clock, and the backup."""
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    moments = []
    for number in range(5):
        await source.write({b"k%d" % number: b"v", b"same": b"%d" % number, b"k%d" % (number - 2): None})
        await copying.catch_up()
        moments.append((CLOCK.wall_ns(), dict(source.state)))
        await asyncio.sleep(0.002)
    await copying.close()
    await source.stop()
    return moments, tmp_path / "backup"


async def test_the_state_of_any_moment_since_the_snapshot_can_be_had(tmp_path: Path) -> None:
    moments, backup = await backed_up(tmp_path)
    for now_ns, state in moments:
        point = find_restore_point(backup, "meta", now_ns)
        assert point.as_of_ns <= now_ns and await restored(point) == state
    assert await restored(find_restore_point(backup, "meta")) == moments[-1][1]
    with pytest.raises(NotFound, match="store of the manager"):
        find_restore_point(backup, "manager")


async def test_after_a_clock_was_set_back_no_later_moment_is_said_than_the_copy_has(tmp_path: Path) -> None:
    clock = SteppedClock()
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup", clock=clock)
    for number, step_s in enumerate((0.0, 7200.0, -3600.0, 60.0)):
        clock.advance(step_s)
        await source.write({b"k%d" % number: b"v"})
        await copying.catch_up()
    point = find_restore_point(tmp_path / "backup", "meta")
    assert point.as_of_ns == copying.as_of_ns == clock.wall_ns()
    assert await restored(point) == source.state
    await copying.close()
    await source.stop()


async def test_a_restored_store_is_marked_with_its_moment_and_nothing_is_overwritten(tmp_path: Path) -> None:
    _, backup = await backed_up(tmp_path)
    point = find_restore_point(backup, "meta")
    engine = MemoryEngine()
    await restore(point, engine)
    mark = await read_mark(engine.begin())
    assert mark is not None and mark.as_of_ns == point.as_of_ns
    rows = await engine.begin().get_range(b"", KEYS_END)
    with pytest.raises(AlreadyExists):
        await restore(point, engine)
    assert await engine.begin().get_range(b"", KEYS_END) == rows


def test_any_damage_is_found_before_anything_is_written(tmp_path: Path) -> None:
    async def main() -> RestorePoint:
        _, backup = await backed_up(tmp_path)
        return find_restore_point(backup, "meta")

    point = asyncio.run(main())
    for file in (point.snapshot.dump, point.snapshot.log):
        content = file.read_bytes()
        for place in range(0, len(content) - 100, 11):
            damaged = bytearray(content)
            damaged[place] ^= 0x10
            file.write_bytes(damaged)
            with pytest.raises(Corrupt):
                find_restore_point(tmp_path / "backup", "meta")
        file.write_bytes(content)
    assert find_restore_point(tmp_path / "backup", "meta") == point


async def test_what_was_written_before_damage_is_restored_if_that_is_wanted(tmp_path: Path) -> None:
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    states = []
    for number in range(8):
        await source.write({b"%d" % number: bytes(100)})
        await copying.catch_up()
        states.append(dict(source.state))
    await copying.close()
    await source.stop()
    log = find_restore_point(tmp_path / "backup", "meta").snapshot.log
    content = log.read_bytes()
    for place in range(0, len(content) - 200, 17):
        damaged = bytearray(content)
        damaged[place] ^= 1
        log.write_bytes(damaged)
        with pytest.raises(Corrupt, match="--up-to-damage"):
            find_restore_point(tmp_path / "backup", "meta")
        point = find_restore_point(tmp_path / "backup", "meta", up_to_damage=True)
        assert point.length_bytes <= place
        assert await restored(point) in states
    log.write_bytes(content)
    assert await restored(find_restore_point(tmp_path / "backup", "meta", up_to_damage=True)) == states[-1]


async def test_what_was_written_before_an_unreadable_sector_is_restored_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments, backup = await backed_up(tmp_path)
    log = find_restore_point(backup, "meta").snapshot.log
    place = log.stat().st_size // 2
    with monkeypatch.context() as disk:
        cannot_be_read(disk, log, place, place + 50)
        with pytest.raises(Corrupt, match=r"cannot be read at byte .*--up-to-damage"):
            find_restore_point(backup, "meta")
        point = find_restore_point(backup, "meta", up_to_damage=True)
        assert 0 < point.length_bytes <= place
        assert await restored(point) in [state for _, state in moments]
    point.snapshot.dump.unlink()
    point.snapshot.dump.symlink_to("/proc/self/mem")
    monkeypatch.setattr("threefs_backup.archive.newest", lambda *names: point.snapshot)
    with pytest.raises(Corrupt, match=r"base\.dump"):
        find_restore_point(backup, "meta")


async def test_a_log_that_was_readable_when_it_was_checked_is_restored_up_to_there_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, backup = await backed_up(tmp_path)
    point = find_restore_point(backup, "meta", up_to_damage=True)
    engine = MemoryEngine()
    cannot_be_read(monkeypatch, point.snapshot.log, point.length_bytes // 2, point.length_bytes)
    with pytest.raises(Corrupt, match="repeat the restore"):
        await restore(point, engine)
    assert await in_part(engine.begin())


class Pages(MemoryEngine):
    """Notes where reads of ranges begin."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[bytes] = []

    def begin(self) -> BufferedTransaction:
        outer = self

        class Noting(BufferedTransaction):
            __slots__ = ()

            async def get_range(self, begin: bytes, *arguments: Any, **options: Any) -> list[Pair]:
                outer.begins.append(begin)
                return await super().get_range(begin, *arguments, **options)

        tx = super().begin()
        tx.__class__ = Noting
        return tx


async def test_what_an_interrupted_restore_has_left_is_removed_page_by_page(tmp_path: Path) -> None:
    """Each page came by the places of all removed records: for 400,000 that took three minutes, for ten times as many a
    hundred times as long."""
    _, backup = await backed_up(tmp_path)
    engine = Pages()
    await dump.begin_restore(engine)
    await dump.fill(engine, ((b"old%05d" % number, b"x") for number in range(3500)))
    engine.begins.clear()
    await restore(find_restore_point(backup, "meta"), engine, exclusive=True)
    removal = engine.begins[: engine.begins.index(b"", 1)]
    assert len(removal) >= 4 and removal == sorted(set(removal))
    pairs = await engine.begin().get_range(b"", KEYS_END)
    assert not any(key.startswith(b"old") for key, _ in pairs)


class Late(MemoryEngine):
    """A store that gives no answer to the first attempt of each commit. It may apply it at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: list[BufferedTransaction] = []
        self._answers = True

    async def commit(self, attempt: BufferedTransaction) -> None:
        self._answers = not self._answers
        if not self._answers:
            self.unanswered.append(attempt)
            raise MaybeCommitted("no answer")
        await super().commit(attempt)


async def test_an_attempt_that_is_applied_late_changes_nothing(tmp_path: Path) -> None:
    """It overwrote what a later part of the log, or a service, had written since."""
    moments, backup = await backed_up(tmp_path)
    engine = Late()
    await restore(find_restore_point(backup, "meta"), engine)
    assert len(engine.unanswered) == 4, "the begin, the snapshot, the log, the end"
    tx = engine.begin()
    settle(tx)
    with pytest.raises(MaybeCommitted):
        await tx.commit()
    await MemoryEngine.commit(engine, engine.unanswered.pop())
    for attempt in engine.unanswered:
        with pytest.raises(Conflict):
            await MemoryEngine.commit(engine, attempt)
    assert dict(await engine.begin().get_range(b"", KEYS_END)) == moments[-1][1]
