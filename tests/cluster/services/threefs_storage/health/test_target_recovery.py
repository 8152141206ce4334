"""A target whose disk is full leaves its chain, and comes back when there is room."""

import asyncio
import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.content_plan import Kind
from threefs_storage.health import target_recovery

from tests.harness.chain_harness import (
    CHUNK,
    LASTSRV,
    OFFLINE,
    SERVING,
    SYNCING,
    chain_of,
    flip_record,
    until,
)
from threefs.backoff import Backoff
from threefs.errors import Corrupt, DiskFailed, NoSpace, ThreefsError
from threefs.routing import LocalState


def fill(replica: Any) -> None:
    """No room for anything."""
    engine = replica.target.engine
    space = engine.space

    def none_left() -> Any:
        return dataclasses.replace(space(), free_bytes=0)

    async def refuse(*rest: Any, **more: Any) -> None:
        raise NoSpace("full")

    replica.before = (engine.space, engine._files.take)
    engine.space, engine._files.take = none_left, refuse


def free(replica: Any) -> None:
    engine = replica.target.engine
    engine.space, engine._files.take = replica.before


@pytest.mark.parametrize("node", [2, 3])
async def test_a_full_replica_leaves_and_comes_back_by_resync(node: int, tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"before")
        fill(chain[node])
        target = chain[node].target
        write = asyncio.create_task(chain.write(b"x" * 70_000, seq=7))
        await until(lambda: target.leaving)
        assert target.local_state is LocalState.OFFLINE and chain[node].targets.reports()[0].read_only
        others = [(n, SERVING) for n in (1, 2, 3) if n != node]
        chain.change(*others, (node, OFFLINE))
        await write
        free(chain[node])
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert not target.full
        target.leased_until = float("inf")
        chain.change(*others, (node, SYNCING))
        await until(lambda: target.synced_in_version == chain.version)
        chain.change(*others, (node, SERVING))
        assert await chain.read(node) == (2, b"x" * 70_000)


async def test_one_that_is_brought_up_to_date_leaves_and_comes_back_too(tmp_path: Path) -> None:
    """Each write of the chain would wait for it until its deadline."""
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"x" * 70_000)
        fill(chain[3])
        target = chain[3].target
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await until(lambda: target.leaving)
        assert target.local_state is LocalState.OFFLINE and not target.has_lease
        write = asyncio.create_task(chain.write(b"y" * 70_000))
        await until(lambda: chain[2].pending() == 2)
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert (await write).version == 2
        free(chain[3])
        await until(lambda: target.local_state is LocalState.ONLINE)
        target.leased_until = float("inf")
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await until(lambda: target.synced_in_version == chain.version)
        chain.change((1, SERVING), (2, SERVING), (3, SERVING))
        assert await chain.read(3) == (2, b"y" * 70_000)


async def test_a_lone_target_is_opened_again_as_soon_as_its_changes_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that came before that counted as an attempt, and nobody served until the next one."""
    monkeypatch.setattr(target_recovery, "_INTERVAL_S", 0.05)
    monkeypatch.setattr(target_recovery, "_ALONE_S", 1e9)
    async with chain_of(tmp_path) as chain:
        target = chain[3].target
        chain.change((3, SERVING), (1, OFFLINE), (2, OFFLINE))
        async with target.locks.hold(CHUNK, 1.0):
            target.engine.fail(Corrupt("what was not durable is lost"))
            chain.change((3, LASTSRV), (1, OFFLINE), (2, OFFLINE))
            await asyncio.sleep(0.5)
            assert target.has_failed
        await until(lambda: not target.has_failed)


async def test_one_without_room_returns_now_and_then_for_what_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside its chain it hears of no removal, so its disk would stay full for ever."""
    monkeypatch.setattr(target_recovery, "_AWAY", Backoff(0.1, 0.1))
    async with chain_of(tmp_path) as chain:
        await chain.write(b"x" * 70_000)
        fill(chain[3])
        target = chain[3].target
        chain[3].storage._target_recovery.on_no_space(target)
        assert target.local_state is LocalState.OFFLINE
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"", kind=Kind.REMOVE)
        await until(lambda: target.local_state is LocalState.ONLINE)
        assert target.engine.space().free_bytes == 0 and target.engine.space().chunks == 1
        target.leased_until = float("inf")
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await until(lambda: target.synced_in_version == chain.version)
        assert target.engine.space().chunks == 0


async def test_a_table_that_has_failed_by_itself_is_opened_again_before_a_client_writes(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target = chain[2].target
        target.save_logical_time = lambda: None  # type: ignore[method-assign]  # else that meets it once a minute
        await until(lambda: not target.engine.pending_chunks)
        table = target.engine._store._table
        table.failure = NoSpace("full")  # as when the mark of a flush finds no room
        await until(lambda: table.failure is None)
        assert (await chain.write(b"after")).version == 2 and not target.leaving


async def test_the_only_one_that_serves_stays_for_reads(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(b"before")
        fill(chain[1])
        with pytest.raises(NoSpace):
            await chain.write(b"x" * 70_000)
        assert await chain.read(1) == (1, b"before") and not chain[1].target.leaving
        free(chain[1])
        assert (await chain.write(b"x" * 70_000)).version == 2


async def test_of_targets_that_have_left_at_the_same_time_one_returns_without_room(tmp_path: Path) -> None:
    """Without it nobody could read, nor remove what fills the disks."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        for node in (1, 2):
            fill(chain[node])
            chain[node].storage._target_recovery.on_no_space(chain[node].target)
        assert all(chain[node].target.local_state is LocalState.OFFLINE for node in (1, 2))
        chain.change((1, LASTSRV), (2, LASTSRV))
        await until(lambda: all(chain[node].target.local_state is LocalState.ONLINE for node in (1, 2)))
        chain[1].target.leased_until = float("inf")
        chain.change((1, SERVING), (2, OFFLINE))
        assert await chain.read(1) == (1, b"before")


async def test_one_that_returns_without_room_is_not_closed_for_it(tmp_path: Path) -> None:
    """Nobody could have opened it again: the content of a long log is written to sorted files first."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")

        async def refuse(directory: Path) -> Any:
            raise NoSpace("full")

        for node in (1, 2):
            fill(chain[node])
            chain[node].targets._open_engine = refuse  # type: ignore[method-assign]
            chain[node].storage._target_recovery.on_no_space(chain[node].target)
        chain.change((1, LASTSRV), (2, LASTSRV))
        await until(lambda: chain[1].target.local_state is LocalState.ONLINE)
        chain[1].target.leased_until = float("inf")
        chain.change((1, SERVING), (2, OFFLINE))
        assert await chain.read(1) == (1, b"before")
        assert not chain[1].target.is_closed and not chain[1].target.leaving


@pytest.mark.parametrize("state", [SERVING, LASTSRV])
async def test_the_only_one_to_be_read_stays_open_while_its_table_takes_nothing(tmp_path: Path, state: Any) -> None:
    """Its ballast is released, and passes for room."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets = chain[1].target, chain[1].targets

        async def refuse(*rest: Any) -> Any:
            raise NoSpace("full")

        targets._open_engine = target.engine.recover = refuse  # type: ignore[method-assign, assignment]
        if state is LASTSRV:
            chain[1].storage._target_recovery.on_no_space(target)
        chain.change((1, state), (2, OFFLINE))
        target.engine.fail(NoSpace("full"))
        await asyncio.sleep(1.2)
        assert target.local_state is not LocalState.OFFLINE and not target.is_closed
        target.leased_until = float("inf")
        chain.change((1, SERVING), (2, OFFLINE))
        assert await chain.read(1) == (1, b"before")


async def test_a_full_one_alone_whose_table_proves_damaged_is_reported_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported as full, and opened twice a second."""
    monkeypatch.setattr(target_recovery, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(target_recovery, "_ALONE_S", 1e9)
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets = chain[2].target, chain[2].targets
        tries = 0

        async def refuse(directory: Path) -> Any:
            nonlocal tries
            tries += 1
            raise Corrupt("the table is damaged") if tries > 1 else NoSpace("full")

        targets._open_engine = refuse  # type: ignore[method-assign]
        chain[2].storage._target_recovery.on_no_space(target)
        chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: tries == 1)
        chain.change((1, OFFLINE), (2, LASTSRV))
        await until(lambda: targets.reports()[0].failure == "the table is damaged")
        tries_before = tries
        await asyncio.sleep(0.3)
        assert tries <= tries_before + 1 and not targets.reports()[0].read_only


async def test_a_store_that_cannot_be_opened_at_first_is_opened_later(tmp_path: Path) -> None:
    """Others have taken the room again. Meanwhile somebody reads the store that is closed."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets = chain[2].target, chain[2].targets
        open_engine, failures = targets._open_engine, 3

        async def refuse(directory: Path) -> Any:
            nonlocal failures
            if not failures:
                return await open_engine(directory)
            failures -= 1
            raise NoSpace("full")

        targets._open_engine = refuse  # type: ignore[method-assign]
        chain[2].storage._target_recovery.on_no_space(target)
        chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: failures < 3)
        with contextlib.suppress(ThreefsError):
            target.engine.stored_record(CHUNK)
        await until(lambda: target.local_state is LocalState.ONLINE)
        target.leased_until = float("inf")
        chain.change((1, SERVING), (2, SYNCING))
        await until(lambda: target.synced_in_version == chain.version)
        chain.change((1, SERVING), (2, SERVING))
        assert await chain.read(2) == (1, b"before")


async def test_one_whose_disk_refuses_room_that_it_says_it_has_returns_only_when_it_takes_some(tmp_path: Path) -> None:
    """It returned twice a second, was synced, refused and left, as long as its disk had a quota."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target = chain[2].target
        chain[2].disk.refuses = True
        chain[2].storage._target_recovery.on_no_space(target)
        chain.change((1, SERVING), (2, OFFLINE))
        space = target.engine.space()
        assert space.free_bytes > space.capacity_bytes // 100
        await asyncio.sleep(1.2)
        assert target.leaving and not target.is_closed
        chain[2].disk.refuses = False
        await until(lambda: target.local_state is LocalState.ONLINE)


async def test_records_that_are_found_damaged_when_a_store_is_opened_again_are_repaired(tmp_path: Path) -> None:
    """Only those of the first opening were."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        for node in (1, 2):
            chain[node].target.leave()
        chain.change((1, LASTSRV), (2, LASTSRV))
        flip_record(chain[2])
        await chain[2].targets.reopen(chain[2].target)
        chain[1].targets.readmit(chain[1].target)
        (report,) = chain[2].targets.reports()
        assert (report.damaged_chunks, report.unrepaired_chunks) == (1, 1)
        for node in (1, 2):
            chain[node].target.leased_until = float("inf")
        chain.change((1, SERVING), (2, SERVING))
        await until(lambda: chain[2].target.repaired_chunks == 1)
        assert await chain.read(2) == (1, b"before") and not chain[2].target.damaged


async def test_one_whose_chain_goes_on_without_it_while_it_is_opened_again_is_deleted_whole(tmp_path: Path) -> None:
    """The store was opened again in the middle of its deletion, and a task of it stayed behind."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"before")
        replica, target = chain[3], chain[3].target
        fill(replica)
        write = asyncio.create_task(chain.write(b"x" * 70_000, seq=7))
        await until(lambda: target.leaving)
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await write
        opened, may_go_on = asyncio.Event(), asyncio.Event()
        open_engine = replica.targets._open_engine

        async def held(directory: Path) -> Any:
            engine = await open_engine(directory)
            opened.set()
            await may_go_on.wait()
            return engine

        replica.targets._open_engine = held  # type: ignore[method-assign]
        free(replica)
        await opened.wait()
        chain.change((1, SERVING), (2, SERVING))
        await asyncio.sleep(0.3)
        assert target.target_id in replica.targets.by_id, "its deletion waits"
        may_go_on.set()
        await until(lambda: target.target_id not in replica.targets.by_id)
        await until(lambda: not list(replica.directory.glob("target-*")))
        assert target.target_id not in replica.storage._pending_recovery._tasks


async def test_a_full_target_that_moves_away_before_its_turn_is_not_recovered(tmp_path: Path) -> None:
    """Others gave their free blocks away for it."""
    async with chain_of(tmp_path, 2) as chain:
        target, targets, recovery = chain[2].target, chain[2].targets, chain[2].storage._target_recovery
        looks, recovered = 0, list[str]()

        async def move_away() -> None:
            nonlocal looks
            looks += 1
            targets.by_id.pop(target.target_id, None)

        async def recover() -> None:
            recovered.append("closed")

        recovery._drop_quarantined = move_away  # type: ignore[method-assign]
        target.engine.recover = recover  # type: ignore[method-assign]
        target.full = True
        await until(lambda: looks > 0)
        await asyncio.sleep(0.1)
        assert not recovered
        targets.by_id[target.target_id] = target


async def test_one_whose_store_takes_changes_again_before_it_has_left_returns_too(tmp_path: Path) -> None:
    """A disk with a quota says that it has room, and refuses records. Nobody brought the target back in the end."""
    async with chain_of(tmp_path, 2) as chain:
        target = chain[2].target
        engine: Any = target.engine
        engine.failure = NoSpace("full")
        tries = 0

        async def recover() -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise NoSpace("full")
            engine.failure = None

        engine.recover = recover
        await until(lambda: tries > 1)
        assert target.leaving
        chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: target.local_state is LocalState.ONLINE)


async def test_a_disk_that_fails_when_room_is_tried_has_failed(tmp_path: Path) -> None:
    """It would be tried twice a second for ever, and nobody would hear of it: a full target takes no writes."""
    async with chain_of(tmp_path, 2) as chain:
        target = chain[2].target

        async def fail(length: int) -> bool:
            raise DiskFailed("input/output error")

        target.engine.disk_takes = fail
        target.full = True
        await until(lambda: target.has_failed)
        assert target.leaving and chain[2].targets.reports()[0].failure == "input/output error"


async def test_a_disk_that_fails_while_a_full_store_on_it_is_closed_has_failed(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"before")
        target, targets, failures = chain[2].target, chain[2].targets, list[ThreefsError]([NoSpace("full")])

        async def refuse(*rest: Any) -> Any:
            raise failures[-1]

        targets._open_engine = refuse  # type: ignore[assignment, method-assign]
        chain[2].storage._target_recovery.on_no_space(target)
        chain.change((1, SERVING), (2, OFFLINE))
        await until(lambda: target.is_closed and not target.reopening)
        fill(chain[2])  # the store is not opened again
        targets._disk.list_directory = refuse  # type: ignore[assignment, method-assign]
        failures.append(DiskFailed("input/output error"))
        await until(lambda: target.has_failed)
        assert targets.reports()[0].failure == "input/output error"


async def test_a_disk_that_fails_elsewhere_while_room_is_tried_stays_failed(tmp_path: Path) -> None:
    """Its store was opened again, and the target returned to its chain on that disk."""
    async with chain_of(tmp_path, 2) as chain:
        target = chain[2].target
        engine, tried = target.engine, asyncio.Event()

        async def meet_failure(length: int) -> bool:
            engine.fail(DiskFailed("a sync of another target has failed"))
            tried.set()
            return True

        engine.disk_takes = meet_failure
        target.full = True
        target.leave()
        chain.change((1, SERVING), (2, OFFLINE))
        await tried.wait()
        await asyncio.sleep(1)
        assert target.engine is engine and target.has_failed and target.leaving
