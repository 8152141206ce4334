"""Stores that come and go, before a manager that remembers; what a meta service does at its start and while it runs."""

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from threefs_manager.stale_stores.metadata_store import admit
from threefs_meta.lease.leases import ensure
from threefs_meta.store import keys
from threefs_meta.store.counters import raise_to, read_counter
from threefs_meta.store.identity import EPOCH_BITS, StoreIdentity
from threefs_meta.store.inode_numbers import BLOCK, InodeAllocator

from tests.harness.clocks import SteppedClock
from tests.harness.meta_harness import new_number, reported
from tests.harness.seeded_random import SeededRandom
from threefs.cluster.data_format import DATA_FORMAT
from threefs.errors import NodeInUse, NoSpace, StrangeStore, ThreefsError, Unavailable
from threefs.ids import ROOT
from threefs.kv import dump, records, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.kv.memory import MemoryEngine
from threefs.kv.rocks import RocksEngine
from threefs.rpc.methods import Method
from threefs.wire import manager_pb2 as pb
from threefs.wire.records_pb2 import Renewal

CLUSTER = "c" * 32
SEEDS = itertools.count()


class ManagerClient:
    """The primary, with its store."""

    def __init__(self) -> None:
        self.engine = MemoryEngine()
        self.requests: list[pb.AdmitStoreRequest] = []
        self.failures: list[ThreefsError] = []

    async def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> Any:
        self.requests.append(pb.AdmitStoreRequest.FromString(request.SerializeToString()))
        if self.failures:
            raise self.failures.pop(0)
        return await retry.run(self.engine, lambda tx: admit(tx, CLUSTER, request), replayable=True)


class World:
    def __init__(self) -> None:
        self.managers = ManagerClient()
        self.clock = SteppedClock()

    def service(self, engine: Engine) -> StoreIdentity:
        return StoreIdentity(engine, self.managers, lambda: CLUSTER, clock=self.clock, random=SeededRandom(next(SEEDS)))


async def tick(engine: MemoryEngine, number: int) -> None:
    await retry.run(engine, lambda tx: _written(tx, number), replayable=True)


async def _written(tx: Transaction, number: int) -> None:
    await raise_to(tx, keys.TICK, number)


async def copied(engine: MemoryEngine) -> MemoryEngine:
    """As a copy of its files would be."""
    other = MemoryEngine()
    tx = other.begin()
    for key, value in await engine.begin().get_range(b"", dump.KEYS_END):
        tx.set(key, value)
    await tx.commit()
    return other


async def restored(engine: MemoryEngine) -> MemoryEngine:
    """As `threefs restore` makes it."""
    other = MemoryEngine()
    await dump.begin_restore(other)
    await dump.fill(other, iter(await engine.begin().get_range(b"", dump.KEYS_END)))
    await dump.end_restore(other)
    return other


def run(body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await body(World())

    asyncio.run(main())


async def check_first_start(world: World) -> None:
    engine = MemoryEngine()
    first = world.service(engine)
    await first.admit()
    assert [request.store_id for request in world.managers.requests] == ["", *2 * [first.record.store_id]]
    assert len(first.record.store_id) == 32 and first.record.cluster_id == CLUSTER and first.record.epoch == 0
    assert await engine.begin().get(keys.inode(ROOT)) is not None
    again = world.service(engine)
    await again.admit()
    assert again.record == first.record


def test_the_first_start_makes_the_store_and_later_ones_know_it() -> None:
    run(check_first_start)


async def check_patience(world: World) -> None:
    """A manager that was away for longer knows at first of nobody who is dead."""
    away, in_use = Unavailable("no manager answers"), NodeInUse("one lives at h:1")
    world.managers.failures = [*[away] * 200, *[in_use] * 50] * 2
    await world.service(MemoryEngine()).admit()
    world.managers.failures = [in_use] * 200
    with pytest.raises(NodeInUse):
        await world.service(MemoryEngine()).admit()


def test_the_wait_for_a_manager_is_no_wait_for_another_service() -> None:
    run(check_patience)


async def check_newer_version(world: World) -> None:
    """As on a store that other services share; its records may have a form that this version takes for damage."""
    engine = MemoryEngine()
    await world.service(engine).admit()
    assert await engine.begin().get(keys.FORMAT) == b"%d" % DATA_FORMAT
    tx = engine.begin()
    tx.set(keys.FORMAT, b"%d" % (DATA_FORMAT + 1))
    tx.set(keys.STORE, b"in another form")
    await tx.commit()
    before = await engine.begin().get_range(b"", dump.KEYS_END)
    with pytest.raises(StrangeStore, match=f"newer version of threefs, in format {DATA_FORMAT + 1}"):
        await world.service(engine).admit()
    assert await engine.begin().get_range(b"", dump.KEYS_END) == before


def test_a_store_in_which_a_newer_version_has_worked_is_refused_and_left_alone() -> None:
    run(check_newer_version)


async def check_older_version(world: World) -> None:
    engine = MemoryEngine()
    await world.service(engine).admit()
    tx = engine.begin()
    tx.clear(keys.FORMAT)  # as versions leave it that note none
    await tx.commit()
    await world.service(engine).admit()
    assert await engine.begin().get(keys.FORMAT) == b"%d" % DATA_FORMAT


def test_a_store_of_an_older_version_is_taken_over() -> None:
    run(check_older_version)


async def check_missing(world: World) -> None:
    await world.service(MemoryEngine()).admit()
    empty = MemoryEngine()
    with pytest.raises(StrangeStore, match=r"is empty.*threefs restore"):
        await world.service(empty).admit()
    assert await empty.begin().get_range(b"", dump.KEYS_END) == [], "nothing was made in it"


def test_an_empty_store_of_a_cluster_that_has_metadata_is_refused_and_left_empty() -> None:
    run(check_missing)


async def check_crash(world: World) -> None:
    """It has made the store, and crashed before the manager heard of it."""
    engine = MemoryEngine()
    world.managers.failures = [Unavailable("not yet"), NoSpace("the disk of the manager is full")]
    await world.service(engine).admit()
    half = MemoryEngine()
    lone = World()
    await lone.service(half).admit()
    tx = lone.managers.engine.begin()
    tx.clear(b"CONF|metadata")
    await tx.commit()
    await lone.service(half).admit()
    with pytest.raises(StrangeStore, match="keeps its metadata in store"):
        await lone.service(engine).admit()


def test_a_crash_between_store_and_manager_is_made_good_by_the_next_start() -> None:
    run(check_crash)


async def check_old_copy(world: World) -> None:
    engine = MemoryEngine()
    await world.service(engine).admit()
    await tick(engine, 5)
    old = await copied(engine)
    await tick(engine, 6)
    await world.service(engine).admit()
    with pytest.raises(StrangeStore, match="older copy"):
        await world.service(old).admit()
    await world.service(await copied(engine)).admit()


def test_an_older_copy_is_refused_and_the_newest_one_is_not() -> None:
    run(check_old_copy)


async def check_copy_before_start(world: World) -> None:
    """It is a moment old: no tick has passed since."""
    engine = MemoryEngine()
    await world.service(engine).admit()
    old = await copied(engine)
    await world.service(engine).admit()
    for _ in range(5):  # a service that does not start is started again and again
        with pytest.raises(StrangeStore, match="older copy"):
            await world.service(old).admit()
    await world.service(await copied(engine)).admit()


def test_a_copy_from_before_the_last_start_is_refused_however_young_it_is() -> None:
    run(check_copy_before_start)


async def check_young_copy(world: World) -> None:
    """It was made while the service ran, and no tick has passed since. But inode numbers were reserved."""
    engine = MemoryEngine()
    service = world.service(engine)
    await service.admit()
    copy = await copied(engine)
    lease = await retry.run(engine, lambda tx: ensure(tx, b"l" * 16, 1), replayable=True)
    number = await new_number(InodeAllocator(engine, report=service.report_inode_numbers))
    with pytest.raises(StrangeStore, match=f"older copy: .* up to {number + BLOCK - 1}"):
        await world.service(copy).admit()
    await world.service(await copied(engine)).admit()
    young = await retry.run(copy, lambda tx: ensure(tx, b"y" * 16, 1), replayable=True)
    assert young == lease, "which is why it must not be served"


def test_a_copy_from_before_the_last_inode_number_is_refused_however_young_it_is() -> None:
    run(check_young_copy)


async def check_leases_of_a_young_copy(world: World) -> None:
    engine = MemoryEngine()
    await world.service(engine).admit()
    copy = await copied(engine)
    lost = await retry.run(engine, lambda tx: ensure(tx, b"l" * 16, 1), replayable=True)
    await world.service(copy).admit()
    assert await retry.run(copy, lambda tx: ensure(tx, b"y" * 16, 1), replayable=True) > lost


def test_a_start_gives_out_no_number_of_a_lease_that_the_copy_may_lack() -> None:
    run(check_leases_of_a_young_copy)


async def check_epochs(world: World) -> None:
    engine = MemoryEngine()
    await world.service(engine).admit()
    low = await new_number(InodeAllocator(engine, report=reported))
    backup = await copied(engine)
    lost = [await new_number(InodeAllocator(engine, report=reported)) for _ in range(3)]  # as the backup does not know
    await tick(engine, 9)
    await world.service(engine).admit()
    seen = {low, *lost}
    for number in range(1, 4):
        again = await restored(backup)
        service = world.service(again)
        await service.admit()
        assert service.record.epoch == number
        inode = await new_number(InodeAllocator(again, report=reported))
        assert inode >> EPOCH_BITS == number and inode not in seen
        seen.add(inode)
        await world.service(again).admit()  # a later start changes nothing
        assert (await new_number(InodeAllocator(again, report=reported))) >> EPOCH_BITS == number
        assert await read_counter(again.begin(), keys.TICK) == 0
    with pytest.raises(StrangeStore, match="older copy"):
        await world.service(engine).admit()


def test_no_restore_ever_gives_out_an_inode_number_again() -> None:
    run(check_epochs)


async def check_running(world: World) -> None:
    engine = MemoryEngine()
    first = world.service(engine)
    await first.admit()
    running = asyncio.create_task(first.run())
    told = len(world.managers.requests)
    while len(world.managers.requests) < told + 5:
        await asyncio.sleep(0)
    assert not running.done()
    other = world.service(await restored(await copied(engine)))
    await other.admit()
    with pytest.raises(StrangeStore, match="older copy"):
        await running


def test_no_lease_outlasts_a_restore_and_no_number_comes_again() -> None:
    """A client that has got a lock since the backup must hear that it has it no longer."""
    old, young, many = b"o" * 16, b"y" * 16, [bytes([n % 256, n // 256]) * 8 for n in range(500)]

    async def body(world: World) -> None:
        engine = MemoryEngine()
        await world.service(engine).admit()
        await retry.run(engine, lambda tx: ensure(tx, old, 1), replayable=True)
        for client in many:
            await retry.run(engine, lambda tx, client=client: ensure(tx, client, 1), replayable=True)  # type: ignore[misc]
        backup = await restored(engine)
        since = await retry.run(engine, lambda tx: ensure(tx, young, 1), replayable=True)
        await world.service(backup).admit()
        tx = backup.begin()
        assert not await tx.get_range(*keys.CLIENTS) and len(await tx.get_range(*keys.ENDED)) == 501
        for client in (old, young):
            assert await retry.run(backup, lambda tx, client=client: ensure(tx, client, 1), replayable=True) > since  # type: ignore[misc]
        left = await backup.begin().get_range(*keys.CLIENTS)
        await world.service(backup).admit()
        assert await backup.begin().get_range(*keys.CLIENTS) == left, "only once"

    run(body)


def test_a_restored_store_with_damaged_records_is_served_and_no_lease_outlasts_the_restore() -> None:
    clients = [bytes([number]) * 16 for number in range(3)]
    tables = [value for value in vars(keys).values() if isinstance(value, tuple) and isinstance(value[0], bytes)]

    async def body(world: World) -> None:
        engine = MemoryEngine()
        await world.service(engine).admit()
        for client in clients:
            await retry.run(engine, lambda tx, client=client: ensure(tx, client, 1), replayable=True)  # type: ignore[misc]
        backup = await restored(engine)
        tx = backup.begin()
        damaged = [keys.client(clients[1]), keys.REMOVED_INODES, *(begin + b"\xff" * 24 for begin, _ in tables)]
        for key in damaged:
            tx.set(key, b"\1damaged")
        await tx.commit()
        await world.service(backup).admit()
        left = [key for key, _ in await backup.begin().get_range(*keys.CLIENTS)]
        assert left == [keys.client(clients[1]), keys.CLIENTS[0] + b"\xff" * 24]
        value = await backup.begin().get(keys.renewal(clients[1]))
        assert value is not None and records.decode(value, Renewal, b"").stamp == 0, "the lease reaper ends it"
        await world.service(backup).admit()

    run(body)


def test_a_service_ends_when_another_store_has_taken_the_place_of_its_own() -> None:
    run(check_running)


async def test_a_copy_of_an_embedded_store_that_lacks_a_reported_change_is_refused(tmp_path: Path) -> None:
    """No tick, no start and no block of inode numbers came between: names and locks alone would be lost."""
    world = World()
    engine = await RocksEngine.open(tmp_path / "kv")
    service = world.service(engine)
    await service.admit()
    shutil.copytree(tmp_path / "kv", tmp_path / "copy")
    await retry.run(engine, lambda tx: _named(tx, b"a name"), replayable=True)
    await service.report_inode_numbers()
    await engine.close()
    older = await RocksEngine.open(tmp_path / "copy")
    assert await older.begin().get(b"a name") is None
    with pytest.raises(StrangeStore, match=r"its newest change is \d+, .*docs/backup.md"):
        await world.service(older).admit()
    await older.close()
    newest = await RocksEngine.open(tmp_path / "kv")
    await world.service(newest).admit()
    await newest.close()


async def test_a_store_that_was_loaded_as_a_backup_begins_its_changes_anew(tmp_path: Path) -> None:
    world = World()
    engine = await RocksEngine.open(tmp_path / "kv")
    service = world.service(engine)
    await service.admit()
    for _ in range(100):
        await retry.run(engine, lambda tx: _named(tx, b"a name"), replayable=True)
    await service.report_inode_numbers()
    loaded = await RocksEngine.open(tmp_path / "loaded")
    await dump.begin_restore(loaded)
    await dump.fill(loaded, iter(await engine.begin().get_range(b"", dump.KEYS_END)))
    await dump.end_restore(loaded)
    assert loaded.durable_change < engine.durable_change
    again = world.service(loaded)
    await again.admit()
    await again.report_inode_numbers()
    await engine.close()
    await loaded.close()


async def _named(tx: Transaction, name: bytes) -> None:
    tx.set(name, b"")
