import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from threefs_backup import archive, follower
from threefs_backup.follower import MetaServices
from threefs_backup.log_file import LogFile
from threefs_backup.restore import find_restore_point
from threefs_client import AsyncFileSystem

from tests.harness.backups import Source, restored
from threefs.env.clock import CLOCK
from threefs.env.worker_threads import StopFlag
from threefs.errors import ConnectionLost, Unavailable
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
            copying.close()
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
    copying.close()
    await source.stop()


async def test_writes_go_on_while_a_snapshot_is_taken(tmp_path: Path) -> None:
    source = await Source(tmp_path / "kv").start()
    for number in range(60):
        await source.write({b"%05d" % number: b"x" * 90_000})
    copying = source.follower(tmp_path / "backup")
    taking = asyncio.create_task(copying.catch_up())
    for number in range(60):
        await source.write({b"%05d" % number: b"later", b"new%d" % number: b"y"})
        await asyncio.sleep(0)
    await taking
    assert source.asked.count("ReadSnapshot") > 3
    await copying.catch_up()
    assert source.asked.count("ReadSnapshot") < 10
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    copying.close()
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
    copying.close()
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
    copying.close()
    copying = other.follower(tmp_path / "backup", progress=told.append)
    await copying.catch_up()
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == {b"b": b"2"}
    assert any("is not the one that was backed up" in line for line in told)
    copying.close()
    await other.stop()


async def test_a_long_log_gives_way_to_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    for number in range(40):
        await source.write({b"key": b"%d" % number * 100})
        await copying.catch_up()
    snapshot = archive.newest(tmp_path / "backup", "meta")
    assert snapshot is not None and int(snapshot.directory.name) > 1
    assert copying.length_bytes < 12_000
    assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
    copying.close()
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
    copying.close()
    await source.stop()


async def test_a_backup_that_was_damaged_is_begun_anew(tmp_path: Path) -> None:
    """A daemon that only refused it would make no backup any more."""
    source = await Source(tmp_path / "kv").start()
    copying = source.follower(tmp_path / "backup")
    for number in range(9):
        await source.write({b"%05d" % number: bytes(100)})
        await copying.catch_up()
    copying.close()

    def damage_log(snapshot: archive.Snapshot) -> None:
        content = bytearray(snapshot.log.read_bytes())
        content[len(content) // 2] ^= 1
        snapshot.log.write_bytes(content)

    def cut_dump(snapshot: archive.Snapshot) -> None:
        snapshot.dump.write_bytes(snapshot.dump.read_bytes()[:-1])

    def remove_dump(snapshot: archive.Snapshot) -> None:
        snapshot.dump.unlink()

    def empty_info(snapshot: archive.Snapshot) -> None:
        (snapshot.directory / "info.json").write_bytes(b"")

    for damage in (damage_log, cut_dump, remove_dump, empty_info):
        snapshot = archive.newest(tmp_path / "backup", "meta")
        assert snapshot is not None
        for _ in range(2):
            await source.write({damage.__name__.encode(): b"x"})
            copying = source.follower(tmp_path / "backup")
            await copying.catch_up()
            copying.close()
        damage(snapshot)
        said: list[str] = []
        copying = source.follower(tmp_path / "backup", progress=said.append)
        await copying.catch_up()
        copying.close()
        assert "what was there is damaged" in said[0], said
        assert await restored(find_restore_point(tmp_path / "backup", "meta")) == source.state
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
