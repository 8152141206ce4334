"""A store whose table is damaged goes to quarantine, and its chain brings the target up to date."""

import asyncio
import dataclasses
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.health.quarantine import check_disk, has_other_copy, quarantine
from threefs_storage.health.target_recovery import _INTERVAL_S
from threefs_storage.targets import Targets

from tests.harness.block_cache import drop_cached_blocks
from tests.harness.chain_harness import (
    CHAIN,
    OFFLINE,
    SERVING,
    SYNCING,
    TestChain,
    cancelled,
    chain_of,
    target_of,
    until,
)
from threefs.env.disk import LEAVING, RealDisk
from threefs.errors import Corrupt, DiskFailed, NoSpace, StrangeStore
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, PublicState, Routing, Target

LASTSRV = PublicState.LASTSRV


@pytest.mark.parametrize(
    ("others", "expected"),
    [((SERVING, OFFLINE), True), ((OFFLINE, LASTSRV), True), ((OFFLINE, OFFLINE), False), ((SYNCING, OFFLINE), False)],
)
def test_who_else_may_have_it(others: tuple[PublicState, ...], expected: bool, tmp_path: Path) -> None:
    for mine in (SERVING, LASTSRV, OFFLINE):
        chain = TestChain(tmp_path, 3)
        chain.members = [(1, mine), (2, others[0]), (3, others[1])]
        assert has_other_copy(chain.routing().chains[CHAIN], target_of(1)) is expected


async def test_a_node_makes_no_empty_stores_on_the_disk_of_another_one(tmp_path: Path) -> None:
    routing = TestChain(tmp_path / "chain", 3).routing()
    (tmp_path / "disk" / "target-201").mkdir(parents=True)
    (tmp_path / "disk" / "target-101.damaged").mkdir()
    disk = RealDisk(threads=1)
    told = "holds target 201, which belongs to node 2, and not target 101 of node 1: mount the disk"
    with pytest.raises(StrangeStore, match=told):
        await Targets(NodeId(1), tmp_path / "disk", disk, EngineSettings()).open(routing)
    assert not (tmp_path / "disk" / "target-101").exists()
    await disk.close()
    (tmp_path / "disk" / "target-101").mkdir()
    check_disk(tmp_path / "disk", NodeId(1), routing)  # what is its own is all there
    check_disk(tmp_path / "disk", NodeId(2), routing)
    with pytest.raises(StrangeStore, match=r"target 101, which belongs to node 1, and not target 301 of node 3"):
        check_disk(tmp_path / "disk", NodeId(3), routing)
    (tmp_path / "new").mkdir()
    check_disk(tmp_path / "new", NodeId(1), routing)
    (tmp_path / "new" / "target-901").mkdir()
    with pytest.raises(StrangeStore, match="which belongs to no node"):
        check_disk(tmp_path / "new", NodeId(1), routing)


async def test_a_store_that_was_set_aside_keeps_no_node_from_making_another_one(tmp_path: Path) -> None:
    """A move has brought target 101 here while the process did not run."""
    routing = TestChain(tmp_path / "chain", 3).routing()
    data, disk = tmp_path / "disk", RealDisk(threads=1)
    (data / "target-901").mkdir(parents=True)
    targets = Targets(NodeId(1), data, disk, EngineSettings())
    await targets.open(routing, is_own_disk=True)
    assert [target.target_id for target in targets] == [101] and (data / "target-901").exists()
    await targets.close()
    (data / "target-201").mkdir()
    check_disk(data, NodeId(1), routing, is_own=True)
    shutil.rmtree(data / "target-101")
    with pytest.raises(StrangeStore, match="holds target 201, which belongs to node 2"):
        check_disk(data, NodeId(1), routing, is_own=True)
    await disk.close()


async def test_only_the_newest_is_kept(tmp_path: Path) -> None:
    disk = RealDisk(threads=1)
    for content in ("first", "second"):
        (tmp_path / "target-7").mkdir()
        (tmp_path / "target-7" / "file").write_text(content)
        await quarantine(tmp_path / "target-7", disk, lambda: False)
    assert [path.name for path in tmp_path.iterdir()] == ["target-7.damaged"]
    assert (tmp_path / "target-7.damaged" / "file").read_text() == "second"
    await disk.close()


@pytest.mark.parametrize(
    ("refused", "number", "error"),
    [
        ("rmdir", errno.EIO, DiskFailed),
        ("rename", errno.EIO, DiskFailed),
        ("rename", errno.ENOSPC, NoSpace),
        ("rename", errno.EDQUOT, NoSpace),
    ],
)
async def test_a_disk_that_does_not_move_a_store_away_has_failed_or_is_full(
    refused: str, number: int, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that looks after damaged targets waits for it. Any other error would end its process, at each start. A
    full disk passed for one that has failed, for all its targets."""
    (tmp_path / "target-7").mkdir()
    if refused == "rmdir":
        (tmp_path / "target-7.damaged" / "records").mkdir(parents=True)

    def fail(*rest: Any, **more: Any) -> None:
        raise OSError(number, "refused")

    disk = RealDisk(threads=1)
    with monkeypatch.context() as patched:
        patched.setattr(*(("os.rmdir", fail) if refused == "rmdir" else (Path, "rename", fail)))
        with pytest.raises(error):
            await quarantine(tmp_path / "target-7", disk, lambda: False)
    await quarantine(tmp_path / "target-7", disk, lambda: False)
    assert [path.name for path in tmp_path.iterdir()] == ["target-7.damaged"]
    await disk.close()


def damage(records: Path) -> None:
    """In every sorted file, where its rows are."""
    for path in records.glob("*.sst"):
        with path.open("r+b") as file:
            file.seek(20)
            file.write(bytes(10))
    drop_cached_blocks()


async def fill(chain: TestChain, node: int) -> None:
    """Something in a sorted file: that is where the log goes when a table is opened."""
    for seq in range(5):
        await chain.write(b"%d" % seq * 5000, seq=seq + 1)
    await chain[node].restart(chain.routing())


async def come_back(chain: TestChain, node: int) -> None:
    others = [(n, SERVING) for n in (1, 2, 3) if n != node]
    target = chain[node].target
    await until(lambda: target.local_state is LocalState.ONLINE)
    target.leased_until = float("inf")
    chain.change(*others, (node, SYNCING))
    await until(lambda: target.synced_in_version == chain.version)
    chain.change(*others, (node, SERVING))
    assert await chain.read(node, length=5000) == (5, b"4" * 5000)


async def quarantined(chain: TestChain) -> Path:
    """Where the store of node 3 is, which was damaged while the others served; an empty one has taken its place."""
    records = chain[3].target.engine._directory / "records"
    chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
    await chain[3].stop()
    damage(records)
    await chain[3].restart(chain.routing())
    return records.parent.with_name(f"{records.parent.name}.damaged")


async def test_a_store_that_cannot_be_opened_is_quarantined_and_filled_anew(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        before = chain[3].target.engine.store_id
        kept = await quarantined(chain)
        assert chain[3].target.engine.store_id != before, "it is taken for an exchanged disk"
        assert (kept / "records").is_dir()
        await come_back(chain, 3)


@pytest.mark.parametrize("others", [SERVING, OFFLINE])
async def test_a_full_disk_gives_up_a_store_in_quarantine_if_others_serve(others: PublicState, tmp_path: Path) -> None:
    """A store that takes more than half of the disk left no room for the one that took its place, for ever."""
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        kept = await quarantined(chain)
        chain.change((1, others), (2, others), (3, SYNCING if others is SERVING else OFFLINE))
        await asyncio.sleep(2 * _INTERVAL_S)
        assert kept.is_dir()
        chain[3].target.full = True
        if others is SERVING:
            await until(lambda: not kept.exists())
        else:
            await asyncio.sleep(2 * _INTERVAL_S)
            assert kept.is_dir(), "nobody may have what is in it"


async def test_a_store_in_quarantine_that_cannot_be_deleted_keeps_no_target_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be room again by other means: without its return the chain would lack a copy for ever."""
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        kept = await quarantined(chain)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        target, tried, tries = chain[3].target, asyncio.Event(), list[Path]()

        async def refuse(path: Path) -> None:
            tries.append(path)
            tried.set()
            raise DiskFailed(f"{path}: Input/output error")

        monkeypatch.setattr(chain[3].targets._disk, "remove_directory", refuse)
        target.full = True
        await tried.wait()
        await until(lambda: not target.full)
        target.full, times = True, len(tries)
        await asyncio.sleep(2 * _INTERVAL_S)
        assert kept.is_dir() and len(tries) == times, "it is not tried all the time"


async def test_a_store_in_quarantine_that_is_deleted_slowly_holds_no_recovery_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        await quarantined(chain)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        target, tried = chain[3].target, asyncio.Event()

        async def hang(path: Path) -> None:
            tried.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(chain[3].targets._disk, "remove_directory", hang)
        target.full = True
        await tried.wait()
        before = target.engine
        before.fail(Corrupt("a table is damaged"))
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await until(lambda: target.engine is not before and not target.leaving)


async def test_a_target_that_gets_the_room_of_a_store_in_quarantine_stays_in_its_chain(tmp_path: Path) -> None:
    """It left just before the store was deleted."""
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        kept = await quarantined(chain)
        chain.change((1, SERVING), (2, SERVING), (3, SERVING))
        target, engine = chain[3].target, chain[3].target.engine
        recover, space = engine.recover, engine.space

        async def recover_in_its_room() -> None:
            if kept.exists():
                raise NoSpace("full")
            await recover()

        engine.recover = recover_in_its_room  # type: ignore[method-assign]
        engine.space = lambda: dataclasses.replace(space(), free_bytes=0) if kept.exists() else space()  # type: ignore[method-assign]
        engine._store._table.failure = NoSpace("full")
        await until(lambda: not kept.exists() and engine.read_only is None)
        assert not target.leaving


async def test_a_damaged_store_that_fills_its_disk_makes_room_for_the_one_that_takes_its_place(tmp_path: Path) -> None:
    """Its chain lacked a copy for ever."""
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        target, targets, before = chain[3].target, chain[3].targets, chain[3].target.engine
        kept = before._directory.with_name(f"{before._directory.name}.damaged")
        (before._directory / "ballast").touch()
        open_table, ballasts = targets._open_table, list[bool]()

        async def open_in_its_room(path: Path) -> Any:
            ballasts.append(((kept if kept.exists() else path.parent) / "ballast").exists())
            if len(ballasts) == 1:
                raise Corrupt("a table is damaged")
            if kept.exists():
                raise NoSpace("full")
            return await open_table(path)

        targets._open_table = open_in_its_room
        before.fail(Corrupt("a table is damaged"))
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await until(lambda: target.engine is not before)
        assert ballasts[:2] == [True, False]


@pytest.mark.parametrize("meanwhile", ["the others fail", "its target is set aside"])
async def test_a_store_in_quarantine_stays_if_it_is_needed_when_its_removal_has_waited(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted, though nobody else may have had what is in it."""
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        kept = await quarantined(chain)
        targets, begun, may_end = chain[3].targets, asyncio.Event(), asyncio.Event()

        async def fail(path: Path) -> None:
            monkeypatch.undo()
            begun.set()
            await may_end.wait()
            raise DiskFailed(f"{path}: Input/output error")

        monkeypatch.setattr(targets._disk, "remove_directory", fail)
        first = asyncio.create_task(targets.drop_quarantined())
        await begun.wait()
        second = asyncio.create_task(targets.drop_quarantined())
        await asyncio.sleep(0.2)
        if meanwhile == "the others fail":
            chain.change((1, OFFLINE), (2, OFFLINE), (3, OFFLINE))
        else:
            await targets.set_aside(chain[3].target)
        may_end.set()
        await asyncio.gather(first, second)
        assert kept.is_dir()


async def open_two(directory: Path, disk: RealDisk) -> Targets:
    """Two targets of one disk, which are out of their chains."""
    ids = {ChainId(chain): (TargetId(100 + chain), TargetId(200 + chain)) for chain in (1, 2)}
    named = {t: Target(t, NodeId(t // 100), chain) for chain, both in ids.items() for t in both}
    chains = {c: Chain(c, 1, (ChainMember(o, SERVING), ChainMember(t, OFFLINE))) for c, (t, o) in ids.items()}
    targets = Targets(NodeId(1), directory, disk, EngineSettings(ballast_bytes=0))
    await targets.open(Routing(1, "c", {}, named, chains, {}))
    return targets


def damage_next_table(targets: Targets) -> None:
    """The next one that is opened."""
    table, tries = targets._open_table, [Corrupt("a table is damaged")]

    async def open_table(path: Path) -> Any:
        if tries:
            raise tries.pop()
        return await table(path)

    targets._open_table = open_table


async def test_a_store_that_went_to_quarantine_and_has_no_successor_yet_says_nothing_of_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next heartbeat failed all targets of the disk: there was nothing where the store had been."""
    disk = RealDisk(threads=2)
    targets = await open_two(tmp_path, disk)
    make = disk.make_directory

    async def refuse(path: Path) -> None:
        if not path.exists():
            raise NoSpace(f"the disk of {path} is full")
        await make(path)

    damage_next_table(targets)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "make_directory", refuse)
        with pytest.raises(NoSpace):
            await targets.reopen(targets.get(101))
    assert all(report.capacity_bytes and not report.failure for report in targets.reports())
    await targets.reopen(targets.get(101))
    await targets.close()
    await disk.close()


async def test_a_damaged_store_is_replaced_while_one_of_another_target_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited in the task that recovers all targets of the process."""
    disk = RealDisk(threads=2)
    targets = await open_two(tmp_path, disk)
    kept = tmp_path / "target-101.damaged"
    kept.mkdir()
    begun, may_end, remove = asyncio.Event(), asyncio.Event(), disk.remove_directory

    async def hang(path: Path) -> None:
        if path == kept:
            begun.set()
            await may_end.wait()
        await remove(path)

    monkeypatch.setattr(disk, "remove_directory", hang)
    deletion = asyncio.create_task(targets.drop_quarantined())
    await begun.wait()
    damage_next_table(targets)
    async with asyncio.timeout(10):
        await targets.reopen(targets.get(102))
    assert (tmp_path / "target-102.damaged").is_dir() and kept.is_dir()
    may_end.set()
    await deletion
    await targets.close()
    await disk.close()


async def test_a_removal_that_its_disk_has_cut_short_is_finished_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it left kept its room until the process was started again."""
    monkeypatch.setattr("threefs_storage.health.target_recovery._DROP_PAUSE_S", 0.0)
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        kept = await quarantined(chain)
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        target, tried = chain[3].target, asyncio.Event()

        def fail(path: Path) -> None:
            tried.set()
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", fail)
            target.full = True
            await tried.wait()
            await until(lambda: not target.full)
        left = kept.with_name(kept.name + LEAVING)
        assert left.is_dir() and not kept.exists()
        target.full = True
        await until(lambda: not left.exists())


async def test_the_only_one_that_may_have_it_is_left_alone(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fill(chain, 3)
        records = chain[3].target.engine._directory / "records"
        chain.change((3, LASTSRV), (1, OFFLINE), (2, OFFLINE))
        await chain[3].stop()
        damage(records)
        disk = RealDisk(threads=1)
        for _ in range(2):  # the first time has let go of it
            targets = Targets(NodeId(3), records.parent.parent, disk, EngineSettings())
            await targets.open(chain.routing())
            (report,) = targets.reports()
            assert not targets.by_id and "is damaged" in report.failure, "the process stays, and says so"
        assert records.is_dir()
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert await targets.open_added(chain.routing()), "an empty one takes its place now"
        await targets.close()
        await disk.close()


def broken(replica: Any) -> None:
    """From now on no list of what is there can be read."""

    def scan(*rest: Any) -> Any:
        raise Corrupt("block checksum mismatch")

    replica.target.engine._store._table.scan = scan


@pytest.mark.parametrize("node", [1, 3])
async def test_a_target_that_cannot_list_what_it_has_leaves_and_comes_back_empty(node: int, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fill(chain, node)
        target, before = chain[node].target, chain[node].target.engine
        damage(before._directory / "records")
        broken(chain[node])
        with pytest.raises(Corrupt):
            target.inventory(None, 10)
        assert target.leaving and target.local_state is LocalState.OFFLINE
        assert "mismatch" in chain[node].targets.reports()[0].failure
        chain.change(*[(n, SERVING) for n in (1, 2, 3) if n != node], (node, OFFLINE))
        await until(lambda: target.engine is not before)
        assert target.engine.store_id != before.store_id
        await come_back(chain, node)


async def test_the_only_one_that_serves_goes_on(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await fill(chain, 1)
        chain.change((1, SERVING), (2, OFFLINE), (3, OFFLINE))
        broken(chain[1])
        with pytest.raises(Corrupt):
            chain[1].target.inventory(None, 10)
        assert not chain[1].target.leaving
        assert await chain.read(1, length=5000) == (5, b"4" * 5000)


async def test_a_table_that_takes_no_writes_because_of_damage_ends_the_target(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        target = chain[2].target

        def write(rows: Any) -> int:
            raise Corrupt("met while sorting")

        target.engine._store._table.write = write  # type: ignore[method-assign, assignment]
        writing = asyncio.create_task(chain.write(b"x"))
        await until(lambda: target.leaving)
        await cancelled(writing)
        assert isinstance(target.engine.failure, Corrupt)
