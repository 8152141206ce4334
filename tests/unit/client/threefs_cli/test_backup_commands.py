import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from threefs_backup import archive, follower
from threefs_backup import restore as restoring
from threefs_backup.archive import ROLES
from threefs_backup.follower import Follower
from threefs_backup.restore import find_restore_point
from threefs_cli import backup_commands, cluster_file
from threefs_cli.main import main

from tests.harness.backups import Source, restored
from tests.harness.chain_harness import until
from tests.harness.clocks import SteppedClock
from tests.harness.other_user import NOBODY, needs_root
from tests.harness.processes import environment
from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK
from threefs.errors import NotSupported, Unavailable
from threefs.kv import engine_url
from threefs.kv.dump import KEYS_END
from threefs.kv.restore_mark import RESTORE_KEY, write_mark


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def make_backup(directory: Path, source_directory: Path) -> None:
    """Of both stores, with one record each."""

    async def work() -> None:
        with archive.locked(directory):
            archive.begin_or_continue(directory, "c" * 32)
            for role in archive.ROLES:
                source = await Source(source_directory / role).start()
                await source.write({role.encode(): b"kept"})
                follower = source.follower(directory, role)
                await follower.catch_up()
                await follower.close()
                await source.stop()

    asyncio.run(work())


def rows(kv: Path) -> dict[bytes, bytes]:
    import uvloop

    async def work() -> dict[bytes, bytes]:
        store = await engine_url.open_engine(engine_url.url_of("", kv))
        try:
            return dict(await store.begin().get_range(b"", KEYS_END))
        finally:
            await store.close()

    return uvloop.run(work())


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    make_backup(tmp_path / "backup", tmp_path / "sources")
    return tmp_path / "backup"


def test_one_store_is_restored_to_a_directory_and_never_over_another(backup: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    told = run("restore", str(backup), "--store", "meta", "--data-dir", str(data))
    assert "restored the store of the meta" in told and "acknowledged by 20" in told
    assert rows(data / "kv")[b"meta"] == b"kept"
    assert "is not empty" in run("restore", str(backup), "--store", "meta", "--data-dir", str(data), code=1)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "cluster_id").write_text("d" * 32 + "\n")
    told = run("restore", str(backup), "--store", "meta", "--data-dir", str(tmp_path / "strange"), code=1)
    assert f"belongs to cluster {'d' * 32}" in told
    assert not (tmp_path / "strange" / "kv").exists()


@pytest.mark.parametrize(("once", "code"), [(["--once"], 130), ([], 0)])
def test_one_copy_that_is_interrupted_has_not_worked(once: list[str], code: int, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"threefs://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "threefs_cli", "backup", *once, "--address", address, str(tmp_path / "b")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment()) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == code
            connection.close()


def test_a_new_snapshot_takes_no_old_one_from_a_restore(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_before_a_new_one(directory: Path, role: str, **how: Any) -> restoring.RestorePoint:
        point = find_restore_point(directory, role, **how)
        writer = archive.SnapshotWriter(directory, role)
        writer.publish(writer.complete("another store", 1, 1))
        return point

    monkeypatch.setattr(backup_commands, "find_restore_point", found_before_a_new_one)
    run("restore", str(backup), "--store", "meta", "--data-dir", str(tmp_path / "data"))
    assert rows(tmp_path / "data" / "kv")[b"meta"] == b"kept"


@pytest.mark.slow
def test_what_a_local_cluster_has_lost_is_restored(backup: Path, tmp_path: Path) -> None:
    home = tmp_path / "cluster"
    home.mkdir()
    cluster_file.save(home, cluster_file.fresh(cluster_file.Plan()))
    told = json.loads(run("restore", str(backup), "--dir", str(home), "--json"))
    assert [one["store"] for one in told["restored"]] == ["meta", "manager"]
    assert rows(home / "manager" / "data" / "kv")[b"manager"] == b"kept"
    assert "no store is lost" in run("restore", str(backup), "--dir", str(home), code=1)
    (home / "meta" / "data" / "kv").rename(tmp_path / "moved")
    told = json.loads(run("restore", str(backup), "--dir", str(home), "--json"))
    assert [one["store"] for one in told["restored"]] == ["meta"]


@needs_root
def test_a_store_of_another_user_is_not_restored_by_root(backup: Path, tmp_path: Path) -> None:
    """Its service runs as that user, and could not open what root has made."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    arguments = ("restore", str(backup), "--store", "manager")
    places = [("--data-dir", str(data)), ("--data-dir", f"{data}/new"), ("--engine", f"rocks://{data}/kv")]
    for place in places:
        assert f"{data} belongs to user {NOBODY}" in run(*arguments, *place, code=1)
        assert not list(data.iterdir())
    os.chown(data, 0, 0)
    run(*arguments, *places[0])


def test_what_cannot_be_is_said(backup: Path, tmp_path: Path) -> None:
    assert "add --store meta" in run("restore", str(backup), "--data-dir", str(tmp_path / "x"), code=2)
    assert "holds no cluster" in run("restore", str(backup), "--dir", str(tmp_path / "none"), code=1)
    (tmp_path / "empty").mkdir()
    assert "holds no backup" in run("restore", str(tmp_path / "empty"), "--dir", str(tmp_path), code=1)
    two = ("--data-dir", str(tmp_path), "--engine", "rocks:///x")
    assert "give one of" in run("restore", str(backup), "--store", "meta", *two, code=2)
    log = next((backup / "meta").glob("*/base.dump"))
    content = bytearray(log.read_bytes())
    content[30] ^= 1
    log.write_bytes(content)
    assert "base.dump: " in run("restore", str(backup), "--store", "meta", "--data-dir", str(tmp_path / "y"), code=1)
    assert not (tmp_path / "y").exists()


@pytest.mark.slow
def test_a_place_that_was_mistyped_is_said(backup: Path, tmp_path: Path) -> None:
    told = run("backup", "--once", str(tmp_path / "not-mounted" / "backup"), code=1)
    assert f"{tmp_path / 'not-mounted'} does not exist: mount the disk" in told
    assert not (tmp_path / "not-mounted").exists()
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("")
    told = run("restore", str(backup), "--store", "meta", "--data-dir", str(home), code=1)
    assert "holds other things (such as thesis.txt)" in told and sorted(home.iterdir()) == [home / "thesis.txt"]
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)
    (tmp_path / "disk" / "cluster_id").write_text("c" * 32 + "\n")
    run("restore", str(backup), "--store", "meta", "--data-dir", str(tmp_path / "disk"))


@pytest.mark.slow
def test_a_restore_that_was_interrupted_is_done_again(backup: Path, tmp_path: Path) -> None:
    def interrupt(kv: Path) -> None:
        import uvloop

        async def work() -> None:
            store = await engine_url.open_engine(engine_url.url_of("", kv))
            tx = store.begin()
            write_mark(tx, complete=False)
            for number in range(3000):
                tx.set(b"half %d" % number, b"x")
            await tx.commit()
            await store.close()

        kv.mkdir(parents=True, exist_ok=True)
        uvloop.run(work())

    data = tmp_path / "data"
    interrupt(data / "kv")
    run("restore", str(backup), "--store", "meta", "--data-dir", str(data))
    assert set(rows(data / "kv")) == {b"meta", RESTORE_KEY}
    home = tmp_path / "cluster"
    home.mkdir()
    cluster_file.save(home, cluster_file.fresh(cluster_file.Plan()))
    interrupt(home / "meta" / "data" / "kv")
    told = json.loads(run("restore", str(backup), "--dir", str(home), "--json"))
    assert [one["store"] for one in told["restored"]] == ["meta", "manager"]
    assert set(rows(home / "meta" / "data" / "kv")) == {b"meta", RESTORE_KEY}


def test_a_restore_that_was_killed_between_two_stores_makes_no_newer_metadata_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata might name a chain table that the manager's tables lack."""
    backup, home = tmp_path / "backup", tmp_path / "cluster"
    make_backup(backup, tmp_path / "sources")

    async def go_on_with_metadata() -> None:
        source = await Source(tmp_path / "sources" / "meta").start()
        await source.write({b"later": b"than the manager"})
        following = source.follower(backup, "meta", clock=SteppedClock(CLOCK.wall_ns() / 1e9 + 60))
        await following.catch_up()
        await following.close()
        await source.stop()

    asyncio.run(go_on_with_metadata())
    home.mkdir()
    cluster_file.save(home, cluster_file.fresh(cluster_file.Plan()))
    done: list[Any] = []

    async def killed_before_the_second(*arguments: Any, **options: Any) -> None:
        if done:
            raise Unavailable("killed")
        done.append(arguments)
        await restoring.restore(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(backup_commands, "restore", killed_before_the_second)
        told = run("restore", str(backup), "--dir", str(home), code=1)
    assert "1 change more of the metadata, up to 20" in told and "restore it alone (--store meta --snapshot 1)" in told
    run("restore", str(backup), "--dir", str(home))
    assert rows(home / "manager" / "data" / "kv")[b"manager"] == b"kept"
    assert b"later" not in rows(home / "meta" / "data" / "kv")

    async def go_on_with_the_restored_store() -> None:
        source = await Source(home / "meta" / "data" / "kv").start()
        said: list[str] = []
        following = source.follower(backup, "meta", progress=said.append)
        await following.catch_up()
        kept = [str(backup / "meta" / "00000001")]
        assert backup_commands.describe(following, CLOCK.wall_ns())["earlier_stores"] == kept
        assert any(f"{kept[0]} is the copy of the store that was there before a restore" in line for line in said)
        await following.close()
        await source.stop()

    asyncio.run(go_on_with_the_restored_store())
    (home / "meta" / "data" / "kv").rename(tmp_path / "moved")
    assert "add --store" in run("restore", str(backup), "--dir", str(home), "--snapshot", "1", code=2)
    assert "no whole snapshot 9" in run(
        "restore", str(backup), "--dir", str(home), "--store", "meta", "--snapshot", "9", code=1
    )
    run("restore", str(backup), "--dir", str(home), "--store", "meta", "--snapshot", "1")
    assert rows(home / "meta" / "data" / "kv")[b"later"] == b"than the manager"


@asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[tuple[dict[str, Source], list[Follower]]]:
    sources = {role: await Source(tmp_path / role).start() for role in ROLES}
    followers: list[Follower] = []
    for role, source in sources.items():
        may_replace = partial(backup_commands._may_replace, role, followers)
        followers.append(source.follower(tmp_path / "backup", role, may_replace=may_replace))
    try:
        yield sources, followers
    finally:
        for one in followers:
            await one.close()
        for source in sources.values():
            await source.stop()


def reports(followers: list[Follower]) -> backup_commands._Report:
    return backup_commands._Report(followers, as_json=False, progress=lambda line: None)


async def test_a_store_whose_snapshot_takes_long_does_not_hold_up_the_other(tmp_path: Path) -> None:
    async with followed(tmp_path) as (sources, followers):
        sources["meta"].snapshots_go_on.clear()
        following = asyncio.create_task(backup_commands._follow(followers, reports(followers)))
        meta, manager = followers
        moment_ns = CLOCK.wall_ns()
        await until(lambda: manager.as_of_ns > moment_ns and not meta.as_of_ns)
        sources["meta"].snapshots_go_on.set()
        await until(lambda: meta.as_of_ns > moment_ns)
        await cancel_and_wait(following)


async def test_a_store_that_cannot_be_copied_leaves_the_other_and_the_last_one_is_an_error(tmp_path: Path) -> None:
    async with followed(tmp_path) as (sources, followers):
        meta = followers[0]
        sources["manager"].failures.append(NotSupported("it is in etcd"))
        sources["meta"].failures.append(Unavailable("it starts"))
        following = asyncio.create_task(backup_commands._follow(followers, reports(followers)))
        await until(lambda: followers == [meta] and meta.failure == "it starts")
        await until(lambda: meta.as_of_ns > 0 and not meta.failure)
        sources["meta"].failures.append(NotSupported("it was moved to etcd"))
        with pytest.raises(NotSupported, match="moved to etcd"):
            await following
        assert not followers


async def test_one_copy_of_both_stores_gives_both_a_new_snapshot_and_they_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    async with followed(tmp_path) as (sources, followers):
        for _ in range(4):
            for source in sources.values():
                await source.write({b"key": bytes(6000)})
            await backup_commands._copy_once(followers, reports(followers))
        points = {role: find_restore_point(tmp_path / "backup", role) for role in ROLES}
        for role, point in points.items():
            assert int(point.snapshot.directory.name) > 1 and point.length_bytes < 7000
            assert await restored(point) == sources[role].state
        assert points["manager"].as_of_ns > points["meta"].as_of_ns
        bounded = find_restore_point(tmp_path / "backup", "meta", points["manager"].as_of_ns)
        assert await restored(bounded) == sources["meta"].state


async def test_one_copy_ends_where_a_clock_that_was_set_back_lets_no_snapshot_replace_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would try until the clock is where it was, as fast as it can."""
    monkeypatch.setattr(follower, "_LONG_LOG_BYTES", 5000)
    async with followed(tmp_path) as (sources, followers):
        meta = followers[0]
        for _ in range(4):
            for source in sources.values():
                await source.write({b"key": bytes(6000)})
            meta._may_replace = lambda moment_ns: False
            async with asyncio.timeout(20):
                await backup_commands._copy_once(followers, reports(followers))
        assert meta.is_taking_snapshot
        assert await restored(find_restore_point(tmp_path / "backup", "meta")) == sources["meta"].state
