"""Targets of one disk: what one of them does not need any more is there for the others at once."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.record_store import RecordTable
from threefs_storage.targets import Targets

from tests.harness.chain_harness import CHUNK, SERVING
from tests.harness.chunk_engine import change, put
from tests.harness.simulated.disk import SimDisk
from tests.harness.simulated.record_table import open_table
from tests.harness.simulated_disk import new_disk, simulate
from tests.harness.virtual_time import LOOP_CLOCK
from threefs.errors import Corrupt, DiskFailed, NoSpace, Unavailable
from threefs.ids import ChainId, ChunkId, NodeId, TargetId
from threefs.kv.rocksdb_store import error_of
from threefs.routing import Chain, ChainMember, Routing, Target

_KIB, _MIB = 1 << 10, 1 << 20
_BLOCK = bytes(256 * _KIB)


def routing_of(*chains: int) -> Routing:
    members = {ChainId(chain): ChainMember(TargetId(100 + chain), SERVING) for chain in chains}
    named = {m.target_id: Target(m.target_id, NodeId(1), chain) for chain, m in members.items()}
    return Routing(1, "c", {}, named, {chain: Chain(chain, 1, (m,)) for chain, m in members.items()}, {})


@asynccontextmanager
async def opened(disk: SimDisk, settings: EngineSettings) -> AsyncIterator[Targets]:
    targets = Targets(NodeId(1), Path("/s"), disk, settings, clock=LOOP_CLOCK, open_table=partial(open_table, disk))
    yield targets
    await targets.close()


async def fill(engine: ChunkEngine) -> int:
    number = 0
    with pytest.raises(NoSpace):
        while True:
            await put(engine, ChunkId(7, number), _BLOCK)
            number += 1
    return number


async def remove(engine: ChunkEngine, count: int) -> None:
    for number in range(count):
        await change(engine, ChunkId(7, number), Kind.REMOVE)


def test_a_target_gets_the_free_blocks_of_the_others_of_its_disk_at_once() -> None:
    """They came back after a minute or two: until then a chain was full, though files of the others were removed."""

    async def main() -> None:
        async with opened(new_disk(capacity_bytes=64 * _MIB), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = (target.engine for target in targets)
            for _ in range(3):
                await remove(one, await fill(one))
                await put(other, CHUNK, _BLOCK)
                await remove(other, await fill(other))

    simulate(main())


def test_a_target_that_came_to_a_full_disk_takes_writes_as_soon_as_another_has_free_blocks() -> None:
    """It has no ballast yet, and found room for one after a minute or two. Dense seed 6575 has found it."""

    async def main() -> None:
        disk = new_disk(capacity_bytes=64 * _MIB)
        async with opened(disk, EngineSettings(ballast_bytes=_MIB)) as targets:
            await targets.open(routing_of(1))
            one = targets.get(TargetId(101)).engine
            filled = await fill(one)
            await targets.open(routing_of(1, 2))
            other = targets.get(TargetId(102)).engine
            await other.recover()
            assert other.read_only is not None
            await remove(one, filled)
            await other.recover()
            assert other.read_only is None
            await put(other, CHUNK, _BLOCK)

    simulate(main())


@pytest.mark.parametrize("beside_damaged", [False, True])
def test_a_target_that_gets_no_ballast_even_so_takes_no_free_blocks_of_others(beside_damaged: bool) -> None:
    """Below the reserve of the disk, clients of these were refused from then on. A damaged one gives none back."""

    async def main() -> None:
        disk = new_disk(capacity_bytes=256 * _MIB)
        async with opened(disk, EngineSettings(ballast_bytes=4 * _MIB)) as targets:
            await targets.open(routing_of(1, 3))
            one, damaged = (target.engine for target in targets)
            if beside_damaged:
                for number in range(24):
                    await put(damaged, ChunkId(7, number), _BLOCK)
                await remove(damaged, 24)
                damaged.fail(Corrupt("a table is damaged"))
            await fill(one)
            disk.capacity_bytes -= disk.free_bytes() - _MIB  # other programs take it
            await targets.open(routing_of(1, 2, 3))
            other = targets.get(TargetId(102)).engine
            await remove(one, 12)
            await one.flush()
            await other.recover()
            assert other.read_only is not None
            await put(one, ChunkId(7, 20), _BLOCK)
            await remove(one, 40)
            await other.recover()
            assert other.read_only is None

    simulate(main())


@pytest.mark.parametrize("others_have", ["much", "less than the reserve"])
def test_a_table_is_opened_again_in_the_room_of_free_blocks_of_others(others_have: str) -> None:
    async def main() -> None:
        disk = new_disk(capacity_bytes=64 * _MIB)
        async with opened(disk, EngineSettings(ballast_bytes=0)) as targets:
            await targets.open(routing_of(1, 2))
            one, other = (target.engine for target in targets)
            await put(other, CHUNK, b"small")
            filled = await fill(one)
            disk.capacity_bytes -= disk.free_bytes()
            with pytest.raises(NoSpace):
                await change(other, CHUNK, Kind.REMOVE)
            assert isinstance(other.failure, NoSpace)
            disk.capacity_bytes += 8 * _KIB  # less than a table needs to be opened
            await remove(one, filled // 2 if others_have == "much" else 4)
            await other.recover()
            assert other.failure is None

    simulate(main())


def test_a_target_gets_the_free_blocks_of_another_one_whose_upkeep_is_under_way() -> None:
    async def main() -> None:
        async with opened(new_disk(capacity_bytes=64 * _MIB), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = (target.engine for target in targets)
            await remove(one, await fill(one))
            async with one._upkeep:
                writing = asyncio.create_task(put(other, CHUNK, _BLOCK))
                await asyncio.sleep(1)
            await writing

    simulate(main())


@pytest.mark.parametrize("when", ["before", "while it is closed"])
def test_a_target_that_is_opened_again_after_its_table_failed_learns_that_its_disk_has_failed(when: str) -> None:
    """It returned to its chain on that disk."""

    async def main() -> None:
        disk = new_disk()
        async with opened(disk, EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = targets
            one.engine.fail(Corrupt("a table is damaged"))
            close = one.engine.close

            async def fail_meanwhile() -> None:
                await close()
                other.engine.fail(DiskFailed("input/output error"))

            if when == "before":
                other.engine.fail(DiskFailed("input/output error"))
                assert isinstance(one.engine.failure, DiskFailed), "it is no damaged table, which is opened again"
            else:
                one.engine.close = fail_meanwhile  # type: ignore[method-assign]
            with pytest.raises(DiskFailed):
                await targets.reopen(one)
            assert isinstance(one.engine.failure, DiskFailed) and one.leaving

    simulate(main())


@pytest.mark.parametrize("what", ["read", "space"])
def test_a_disk_that_fails_while_a_store_on_it_could_not_be_opened_again_has_failed(what: str) -> None:
    """It was reported as full, for ever: nothing is met in a store that is closed, but when it is opened."""

    async def main() -> None:
        disk = new_disk()
        async with opened(disk, EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = targets
            open_table = targets._open_table

            async def refuse(path: Path) -> RecordTable:
                raise NoSpace("full")

            targets._open_table = refuse
            one.leave()
            for target in (one, other):
                with pytest.raises(NoSpace):
                    await targets.reopen(target)
            targets._open_table = open_table
            disk.failing.add(what)
            if what == "read":
                with pytest.raises(Unavailable):
                    await targets.reopen(one)
            assert [bool(report.failure) for report in targets.reports()] == [True, True]
            assert one.has_failed and other.has_failed

    simulate(main())


@pytest.mark.parametrize("said", ["While lock file: LOCK: Resource temporarily unavailable", "Too many open files"])
def test_a_store_that_is_open_already_or_finds_no_descriptor_says_nothing_of_its_disk(said: str) -> None:
    async def main() -> None:
        async with opened(new_disk(), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = targets

            async def refuse(path: Path) -> RecordTable:
                raise error_of(OSError(said), "the table")

            open_table, targets._open_table = targets._open_table, refuse
            one.leave()
            with pytest.raises(Unavailable):
                await targets.reopen(one)
            assert not one.has_failed and not other.has_failed
            targets._open_table = open_table

    simulate(main())


@pytest.mark.parametrize("said", ["While lock file: LOCK: Resource temporarily unavailable", "Too many open files"])
def test_nor_does_a_full_one_that_is_opened_again_in_place(said: str) -> None:
    async def main() -> None:
        async with opened(new_disk(), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = targets
            store = one.engine._store

            async def refuse() -> None:
                raise error_of(OSError(said), "the table")

            reopen, store.reopen = store.reopen, refuse  # type: ignore[method-assign]
            store._table.failure = NoSpace("full")
            one.engine.fail(NoSpace("full"))
            with pytest.raises(Unavailable):
                await one.engine.recover()
            assert not one.has_failed and not other.has_failed
            store.reopen = reopen  # type: ignore[method-assign]
            await one.engine.recover()
            await put(one.engine, CHUNK, _BLOCK)

    simulate(main())


def test_a_table_that_finds_no_descriptor_fails_no_other_target_of_the_disk() -> None:
    """All targets of the process failed, until it was started again."""

    async def main() -> None:
        async with opened(new_disk(), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, other = targets
            one.engine.fail(error_of(OSError("While open a file for appending: Too many open files"), "the table"))
            assert one.has_failed and one.leaving
            assert not other.has_failed and not other.leaving
            other.engine.fail(DiskFailed("input/output error"))
            assert isinstance(one.engine.failure, DiskFailed), "it is not opened again on that disk"

    simulate(main())


def test_a_target_that_a_move_brings_to_a_disk_that_has_failed_has_failed() -> None:
    async def main() -> None:
        async with opened(new_disk(), EngineSettings()) as targets:
            await targets.open(routing_of(1))
            targets.get(TargetId(101)).engine.fail(DiskFailed("input/output error"))
            await targets.open_added(routing_of(1, 2))
            added = targets.get(TargetId(102))
            assert added.has_failed and added.leaving

    simulate(main())


def test_a_target_that_has_moved_away_says_nothing_of_its_disk() -> None:
    """What recovers full targets may still ask for its room. All targets of the disk failed then."""

    async def main() -> None:
        async with opened(new_disk(), EngineSettings()) as targets:
            await targets.open(routing_of(1, 2))
            one, moved = targets
            await targets.delete(moved)
            assert moved.engine.space().capacity_bytes and moved.engine.room_bytes
            assert not one.has_failed

    simulate(main())


def test_a_target_that_was_deleted_is_made_again_only_as_a_member_of_its_chain() -> None:
    """The manager names it until it has heard that nothing of it is left. Routings that come until then make no store,
    which the manager would not know any more when it has forgotten the target."""

    async def main() -> None:
        disk = new_disk()
        async with opened(disk, EngineSettings()) as targets:
            member = routing_of(1, 2)
            chain = ChainId(2)
            await targets.open(member)
            moved = targets.get(102)
            removed = dataclasses.replace(member, chains={**member.chains, chain: Chain(chain, 2, ())})
            targets.apply_routing(removed)
            await targets.delete(moved)
            store_id = moved.engine.store_id
            for _ in range(2):
                assert not await targets.open_added(removed)
                assert [report.target_id for report in targets.reports()] == [101]
                assert not any("target-102" in str(path) for path in disk.tables)
            assert not await targets.open_added(routing_of(1)), "the manager has forgotten it"
            assert not targets._deleted
            assert await targets.open_added(member), "a restored manager knows it as a member"
            assert targets.get(102).engine.store_id != store_id
            await targets.delete(targets.get(102))
            assert await targets.open_added(member)

    simulate(main())
