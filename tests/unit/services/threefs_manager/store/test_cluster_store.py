import asyncio

import pytest
from threefs_manager.placement.chain_assignment import place
from threefs_manager.placement.plan import Disk
from threefs_manager.store.cluster_store import Store, Writer, retry_forever

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from tests.harness.terms import take
from threefs.cluster.manager_records import CLUSTER_KEY
from threefs.errors import Corrupt, Fenced, NotFound, StrangeStore, ThreefsError, Unavailable
from threefs.ids import NodeId, TableId
from threefs.kv.memory import MemoryEngine
from threefs.wire import manager_pb2 as pb

CHAINS, TARGETS = place([Disk(NodeId(n), f"d{n}") for n in (1, 2, 3)], 3, 2)


async def open_store(engine: MemoryEngine, holder: str = "one") -> Store:
    return Store(engine, await take(engine, holder))


async def fill(writer: Writer) -> None:
    writer.cluster.cluster_id = "c"
    for number in (3, 1, 2):
        writer.put_node(pb.Node(node_id=number, kind=pb.STORAGE, domain=f"d{number}"))
    writer.put_chains(CHAINS, TARGETS)
    writer.put_table(pb.ChainTable(table_id=1, chains=[1, 2]))


async def test_stored_records_are_there_again_after_a_restart() -> None:
    engine = MemoryEngine()
    empty = await (await open_store(engine)).load()
    assert (empty.version, empty.cluster_id) == (0, "")
    _, written = await (await open_store(engine)).change(fill)
    again = await (await open_store(engine, "two")).load()
    assert again == written
    assert (again.version, again.cluster_id) == (1, "c")
    assert list(again.nodes) == [1, 2, 3]
    assert list(again.chains.values()) == CHAINS
    assert set(again.targets.values()) == set(TARGETS)
    assert again.tables == {TableId(1): (1, 2)}


async def test_the_version_rises_only_with_a_change() -> None:
    async def look(writer: Writer) -> int:
        return len(await writer.nodes())

    async def touch(writer: Writer) -> None:
        writer.put_node(pb.Node(node_id=1, kind=pb.STORAGE, address="a:1"))

    store = await open_store(MemoryEngine())
    await store.change(fill)
    count, routing = await store.change(look)
    assert (count, routing.version) == (3, 1)
    _, routing = await store.change(touch)
    assert routing.version == 2 and routing.nodes[NodeId(1)].address == "a:1"


async def test_an_error_within_a_change_leaves_all_as_it_was() -> None:
    async def break_off(writer: Writer) -> None:
        await fill(writer)
        raise NotFound("no")

    store = await open_store(MemoryEngine())
    with pytest.raises(NotFound):
        await store.change(break_off)
    assert (await store.load()).version == 0


async def test_a_deposed_manager_cannot_change_anything() -> None:
    engine = MemoryEngine()
    old = await open_store(engine)
    new = await open_store(engine, "two")
    with pytest.raises(Fenced):
        await old.change(fill)
    assert (await new.load()).version == 0
    assert (old.epoch, new.epoch) == (1, 2)


@pytest.mark.parametrize("seed", range(5))
async def test_versions_rise_through_conflicts_and_unknown_commits(seed: int) -> None:
    clock, dice = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=dice, conflict_rate=0.2, unknown_rate=0.2, clock=clock)
    store = Store(engine, await take(engine, "one", clock=clock, random=dice))

    async def register(number: int) -> int:
        async def write(writer: Writer) -> None:
            writer.put_node(pb.Node(node_id=number, kind=pb.META, address=f"a:{number}"))

        _, routing = await store.change(write)
        assert routing.nodes[NodeId(number)].address == f"a:{number}"
        return routing.version

    versions = await asyncio.gather(*(register(number) for number in range(1, 11)))
    assert len(set(versions)) == 10, "no version names two snapshots"
    final = await store.load()
    assert len(final.nodes) == 10 and final.version >= max(versions)


async def test_a_damaged_record_is_reported_with_its_key() -> None:
    engine = MemoryEngine()
    store = await open_store(engine)
    await store.change(fill)
    tx = engine.begin()
    value = await tx.get(CLUSTER_KEY)
    assert value is not None
    tx.set(CLUSTER_KEY, value[:-1] + bytes((value[-1] ^ 1,)))
    await tx.commit()
    with pytest.raises(Corrupt, match="CONF"):
        await store.load()


@pytest.mark.parametrize("final", [Fenced("another manager"), StrangeStore("of another cluster")])
async def test_the_beginning_of_a_term_tries_again_until_it_works_or_waiting_does_not_help(final: ThreefsError) -> None:
    failures: list[ThreefsError] = [Unavailable("not yet"), Unavailable("not yet")]

    async def load() -> int:
        if failures:
            raise failures.pop()
        return 7

    clock = SteppedClock()
    assert await retry_forever(load, clock) == 7
    failures = [final]
    with pytest.raises(type(final)):
        await retry_forever(load, clock)
