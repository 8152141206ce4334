import asyncio
import errno
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from threefs_backup import archive, follower, log_file
from threefs_backup.follower import MetaServices
from threefs_backup.log_file import LogFile
from threefs_backup.restore import find_restore_point
from threefs_client import AsyncFileSystem

from tests.harness.backups import Source, restored
from tests.harness.small_disk import small_disk
from threefs.env.clock import CLOCK
from threefs.env.worker_threads import StopFlag
from threefs.errors import ConnectionLost, Unavailable
from threefs.kv.wal_recovery import KEPT
from threefs.rpc.methods import READ_LOG, Method
from threefs.wire import backup_pb2 as pb


@pytest.mark.slow
async def test_a_backup_follows_over_logs_starts_and_lost_connections(tmp_path: Path) -> None:
    """After each round, a store made from the backup is the source, as it was acknowledged."""
    dice = random.Random(3)
    source = await Source(tmp_path / "kv").start()
    for number in range(300):
        await source.write({b"%05d" % number: bytes(number)})
    copying = source.follower(tmp_path / "backup")
    for turn in range(30):
        for _ in range(dice.randrange(5)):
            key = b"%05d" % dice.randrange(400)
            await source.write({key: None if dice.random() < 0.3 else bytes(dice.randrange(3000)), b"n": b"%d" % turn})
        if turn % 4 == 1:
            source.rotate()
        if turn % 6 == 2:
            await source.stop()
            await source.start()
        if turn % 7 == 3:
            await copying.close()
            copying = source.follower(tmp_path / "backup")
        if turn % 5 == 4:
            source.failures.append(ConnectionLost("gone"))
            with pytest.raises(ConnectionLost):
                await copying.catch_up()
        before = CLOCK.wall_ns()
        await copying.catch_up()
        assert copying.as_of_ns >= before
        point = find_restore_point(tmp_path / "backup", "meta")
        assert point.as_of_ns == copying.as_of_ns
        assert await restored(point) == source.state, turn
    assert source.asked.count("ReadSnapshot") < 20, "one snapshot, some pages"
    await copying.close()
    await source.stop()


async def test_writes_go_on_while_a_snapshot_is_taken(tmp_path: Path) -> None:
    source = await Source(tmp_path / "kv").start()
    for number in range(60):
        await source.write({b"%05d" % number: b"x" * 90_000})
    copying = source.follower(tmp_path / "backup")
    taking = asyncio.create_task(copying.catch_up())
    while source.asked.count("ReadSnapshot") < 2:  # a first page is there, so the moment of the snapshot is over
        await asyncio.sleep(0)
    source.snapshots_go_on.clear()
    for number in range(60):
        if number == 30:
            source.snapshots_go_on.set()
        await source.write({b"%05d" % number: b"later", b"new%d" % number: b"y"})
        await asyncio.sleep(0)
    await taking
    assert source.asked.count("ReadSnapshot") == 4, "its pages are those of the 60 long values"
    await copying.catch_up()
    assert source.asked.count("ReadSnapshot") < 10
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_the_event_loop_goes_on_while_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is as slow as it likes: here until the loop has done something else."""
    source = await Source(tmp_path / "kv").start()
    await source.write({b"a": b"1"})
    begun, goes_on, writes = StopFlag(), StopFlag(), 0

    def slowly(write: Callable[..., None]) -> Callable[..., None]:
        def slow(*args: Any) -> None:
            nonlocal writes
            begun.set()
            assert goes_on.wait(30.0), "the loop stands still"
            writes += 1
            write(*args)

        return slow

    async def loop_goes_on() -> None:
        while not begun.wait(0):
            await asyncio.sleep(0.001)
        goes_on.set()

    copying = source.follower(tmp_path / "backup")
    monkeypatch.setattr(archive.SnapshotWriter, "put", slowly(archive.SnapshotWriter.put))
    await asyncio.gather(copying.catch_up(), loop_goes_on())
    assert writes == 1
    begun, goes_on = StopFlag(), StopFlag()
    monkeypatch.setattr(LogFile, "append", slowly(LogFile.append))
    await source.write({b"a": b"2"})
    await asyncio.gather(copying.catch_up(), loop_goes_on())
    assert writes == 2 and await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_another_store_or_an_older_copy_begins_a_new_snapshot(tmp_path: Path) -> None:
    source = await Source(tmp_path / "kv").start()
    await source.write({b"a": b"1"})
    told: list[str] = []
    copying = source.follower(tmp_path / "backup", progress=told.append)
    await copying.catch_up()
    await source.stop()
    other = await Source(tmp_path / "other").start()
    await other.write({b"b": b"2"})
    await copying.close()
    copying = other.follower(tmp_path / "backup", progress=told.append)
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == {b"b": b"2"}
    assert any("is not the one that was backed up" in line for line in told)
    await copying.close()
    await other.stop()


async def test_an_older_copy_that_has_gone_on_is_not_taken_for_the_store_of_before(tmp_path: Path) -> None:
    """It has counted up to the changes that the backup has, with others. The copy was of two histories at once."""
    source = await Source(tmp_path / "kv").start()
    await source.write({b"a": b"1"})
    copying = source.follower(tmp_path / "backup")
    await copying.catch_up()
    await source.stop()
    shutil.copytree(tmp_path / "kv", tmp_path / "copy")
    await source.start()
    for number in range(5):
        await source.write({b"only here %d" % number: b"2"})
    await copying.catch_up()
    await source.stop()
    state = {b"a": b"1"}
    source.directory, source.state = tmp_path / "copy", state
    await source.start()
    for number in range(20):
        await source.write({b"only there %d" % number: b"3"})
    for _ in range(2):
        await copying.catch_up()
        assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
        await copying.close()
        copying = source.follower(tmp_path / "backup")
        await source.write({b"b": b"4"})
    assert source.asked.count("ReadSnapshot") == 2
    await copying.catch_up()
    assert source.asked.count("ReadSnapshot") == 2, "this one is known by its last write"
    await copying.close()
    await source.stop()


async def test_a_long_log_gives_way_to_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    for number in range(40):
        await source.write({b"key": b"%d" % number * 100})
        await copying.catch_up()
        await copying.snapshot_taken()  # its sync may last longer than all the others together
    snapshot = archive.newest(tmp_path / "backup", "meta")
    assert snapshot is not None and int(snapshot.directory.name) > 1
    assert copying.length_bytes < 12_000
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_the_copy_goes_on_while_a_new_snapshot_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has everything after each round, before the new snapshot takes over and after."""
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")

    async def one_round() -> None:
        await source.write({b"key": CLOCK.wall_ns().to_bytes(8) * 100})
        before = CLOCK.wall_ns()
        await asyncio.wait_for(copying.catch_up(), 20)
        point = find_restore_point(tmp_path / "backup", "meta")
        assert point.as_of_ns == copying.as_of_ns >= before
        assert await restored(point) == source.state

    await one_round()
    source.snapshots_go_on.clear()
    for _ in range(30):
        await one_round()
    assert copying.is_taking_snapshot and copying.length_bytes > 20_000
    source.snapshots_go_on.set()
    for _ in range(3):
        await one_round()
    while copying.is_taking_snapshot:
        await copying.snapshot_taken()  # while a disk stalls, many rounds would make the new log long
        await one_round()
    assert copying.length_bytes < 20_000
    await one_round()
    await copying.close()
    await source.stop()


async def test_a_backup_that_is_interrupted_anywhere_can_be_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every line that works on the files, the directory is copied: as the end of the process would leave it."""
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    states: list[dict[bytes, bytes]] = [{}]  # after each round
    left: dict[Path, int] = {}  # copy of the directory: the last round that had ended
    known: set[tuple[object, ...]] = set()

    def look() -> None:
        files = sorted(path for path in (tmp_path / "backup").rglob("*"))
        seen = tuple((str(path), path.stat().st_size) for path in files)
        if seen not in known:
            known.add(seen)
            copy = tmp_path / f"left{len(left)}"
            shutil.copytree(tmp_path / "backup", copy)
            left[copy] = len(states) - 1

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename in (archive.__file__, log_file.__file__, shutil.__file__):
            sys.settrace(None)
            look()
            sys.settrace(trace)
            return trace
        return None

    async def traced(function: Callable[..., Any], *arguments: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)

    await copying.catch_up()
    monkeypatch.setattr(follower, "in_thread", traced)
    for number in range(12):
        await source.write({b"key": b"%d" % number * 700, b"k%d" % number: b"v"})
        await copying.catch_up()
        states.append(dict(source.state))
    await copying.close()
    numbers = {path.name for copy in left for path in (copy / "meta").iterdir()}
    assert {"00000001", "00000002.partial", "00000002"} <= numbers and len(left) > 20
    for copy, ended in left.items():
        assert await restored(find_restore_point(copy, "meta")) in states[ended : ended + 2], copy
        continued = source.follower(copy)
        assert continued.as_of_ns, copy
        await continued.close()
    await source.stop()


async def test_a_new_snapshot_waits_for_what_it_refers_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    asked, allowed_ns = [], 0

    def may_replace(state_ns: int) -> bool:
        asked.append(state_ns)
        return state_ns <= allowed_ns

    copying = source.follower(tmp_path / "backup", may_replace=may_replace)
    for number in range(30):
        await source.write({b"key": b"%d" % number * 700})
        await copying.catch_up()
        await copying.snapshot_taken()
    snapshot = archive.newest(tmp_path / "backup", "meta")
    assert snapshot is not None and asked and asked[0] > snapshot.taken_ns
    moment_ns, state = CLOCK.wall_ns(), dict(source.state)
    await source.write({b"later": b"x"})
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta", moment_ns)) == state
    allowed_ns = asked[0]
    await copying.catch_up()
    replacement = archive.newest(tmp_path / "backup", "meta")
    assert replacement is not None and replacement.directory != snapshot.directory
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_a_snapshot_that_is_given_up_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because the disk is full, or the backup ends."""
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")

    async def fill(rounds: int) -> None:
        for number in range(rounds):
            await source.write({b"key": b"%d" % number * 700})
            await copying.catch_up()

    def full(self: archive.SnapshotWriter, snapshot: archive.Snapshot) -> archive.Snapshot:
        raise OSError(errno.ENOSPC, "full")

    await copying.catch_up()
    with monkeypatch.context() as patched:
        patched.setattr(archive.SnapshotWriter, "publish", full)
        with pytest.raises(OSError, match="full"):
            for _ in range(10):
                await fill(10)
                await copying.snapshot_taken()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    source.snapshots_go_on.clear()
    await fill(20)
    assert copying.is_taking_snapshot
    await copying.close()
    source.snapshots_go_on.set()
    assert [path.name for path in (tmp_path / "backup" / "meta").iterdir()] == ["00000001"]
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await source.stop()


async def test_a_snapshot_that_is_interrupted_leaves_the_one_before(tmp_path: Path) -> None:
    source = await Source(tmp_path / "kv").start()
    for number in range(40):
        await source.write({b"%05d" % number: b"x" * 90_000})
    copying = source.follower(tmp_path / "backup")
    taking = asyncio.create_task(copying.catch_up())
    while source.asked.count("ReadSnapshot") < 2:
        await asyncio.sleep(0)
    await source.stop()
    await source.start()
    with pytest.raises(Unavailable, match="interrupted"):
        await taking
    assert archive.newest(tmp_path / "backup", "meta") is None and copying.as_of_ns == 0
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_a_backup_that_was_damaged_is_begun_anew(tmp_path: Path) -> None:
    """A daemon that only refused it would make no backup any more."""
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    for number in range(9):
        await source.write({b"%05d" % number: bytes(100)})
        await copying.catch_up()
    await copying.close()

    def damage_log(snapshot: archive.Snapshot) -> None:
        content = bytearray(snapshot.log.read_bytes())
        content[len(content) // 2] ^= 1
        snapshot.log.write_bytes(content)

    def make_log_unreadable(snapshot: archive.Snapshot) -> None:
        snapshot.log.unlink()
        snapshot.log.symlink_to("/proc/self/mem")  # nothing lies at its beginning, and the kernel says EIO

    def cut_dump(snapshot: archive.Snapshot) -> None:
        snapshot.dump.write_bytes(snapshot.dump.read_bytes()[:-1])

    def remove_dump(snapshot: archive.Snapshot) -> None:
        snapshot.dump.unlink()

    def empty_info(snapshot: archive.Snapshot) -> None:
        (snapshot.directory / "info.json").write_bytes(b"")

    def turn_bit_of_dump(snapshot: archive.Snapshot) -> None:
        content = bytearray(snapshot.dump.read_bytes())
        content[len(content) // 2] ^= 1
        snapshot.dump.write_bytes(content)

    for damage in (damage_log, make_log_unreadable, turn_bit_of_dump, cut_dump, remove_dump, empty_info):
        snapshot = archive.newest(tmp_path / "backup", "meta")
        assert snapshot is not None
        for _ in range(2):
            await source.write({damage.__name__.encode(): b"x"})
            copying = source.follower(tmp_path / "backup")
            await copying.catch_up()
            await copying.close()
        damage(snapshot)
        said: list[str] = []
        copying = source.follower(tmp_path / "backup", progress=said.append)
        await copying.catch_up()
        await copying.close()
        assert "what was there is damaged" in said[0], said
        assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await source.stop()


async def test_a_snapshot_that_fills_the_disk_leaves_its_room_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    with small_disk(tmp_path / "disk", "2m") as disk:
        copying = source.follower(disk / "backup")
        await copying.catch_up()
        await source.write({b"%05d" % number: random.Random(number).randbytes(1000) for number in range(600)})
        await source.write({b"more%05d" % number: random.Random(number).randbytes(1000) for number in range(600)})
        await copying.catch_up()
        assert copying.is_taking_snapshot
        await copying.snapshot_taken()
        with pytest.raises(OSError, match="No space"):
            await copying.catch_up()
        for number in range(50):
            await source.write({b"key": b"%d" % number * 200})
            await copying.catch_up()
        assert await restored(find_restore_point(disk / "backup", "meta")) == source.state
        await copying.close()
    await source.stop()


async def test_a_backup_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    """A log without a name could be appended to, but never read again."""
    source = await Source(tmp_path / "kv").start()
    await source.write({b"a": b"1"})
    copying = source.follower(tmp_path / "backup")
    await copying.catch_up()
    shutil.rmtree(tmp_path / "backup")
    await source.write({b"a": b"2"})
    with pytest.raises(FileNotFoundError):
        await copying.catch_up()
    (tmp_path / "backup").mkdir()
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


async def test_a_snapshot_may_take_longer_than_the_service_keeps_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_LOG_EVERY_S", 0.0)
    source = await Source(tmp_path / "kv").start()
    for number in range(60):
        await source.write({b"%05d" % number: b"x" * 90_000})
    copying = source.follower(tmp_path / "backup")
    taking = asyncio.create_task(copying.catch_up())
    old: list[Path] = []  # logs that ended before the newest pages, so the backup has read what is in them
    for number in range(20):
        await source.write({b"%05d" % number: b"later", b"new%d" % number: b"y"})
        pages = source.asked.count("ReadSnapshot")
        while not taking.done() and source.asked.count("ReadSnapshot") < pages + 2:
            await asyncio.sleep(0)
        for log in old:
            log.unlink()
        source.rotate()
        old = list((source.directory / KEPT).glob("*.log"))
    await taking
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    await copying.close()
    await source.stop()


class Peers:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gone: set[str] = set()

    async def call(self, address: str, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        self.asked.append(address)
        if address in self.gone:
            raise Unavailable("nobody there")
        return pb.ReadLogReply()


def client(peers: Peers, known: list[str]) -> AsyncFileSystem:
    routing = SimpleNamespace(meta_addresses=lambda: tuple(known))
    context = SimpleNamespace(peers=peers, cluster=SimpleNamespace(routing=routing))
    return cast(AsyncFileSystem, SimpleNamespace(context=context))


async def test_a_meta_service_that_is_gone_is_passed_over_and_a_new_one_is_found() -> None:
    peers, known = Peers(), ["a:1", "b:1"]
    services = MetaServices(client(peers, known))
    peers.gone = {"a:1"}
    await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
    assert peers.asked == ["a:1", "b:1"]
    known[:] = ["c:1"]
    await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
    assert peers.asked[-1] == "c:1"
    known.clear()
    with pytest.raises(Unavailable, match="no meta service"):
        await services.call(READ_LOG, pb.ReadLogRequest(), timeout_s=1)
