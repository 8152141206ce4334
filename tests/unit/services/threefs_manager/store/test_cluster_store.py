import asyncio
import contextlib
import dataclasses

import pytest
from threefs_manager.placement.chain_assignment import place
from threefs_manager.placement.plan import Disk
from threefs_manager.store.cluster_store import Store, Writer, retry_forever

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from tests.harness.terms import take
from threefs.cluster.manager_records import CLUSTER_KEY
from threefs.errors import (
    Conflict,
    Corrupt,
    Fenced,
    MaybeCommitted,
    NotFound,
    StrangeStore,
    ThreefsError,
    Unavailable,
)
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import Chain, ChainMember, Hold, Node, NodeKind, PublicState, Target
from threefs.wire import manager_pb2 as pb

READ_RANGES = 4  # of nodes, targets, chains and tables
CHAINS, TARGETS = place([Disk(NodeId(n), f"d{n}") for n in (1, 2, 3)], 3, 2)


async def open_store(engine: MemoryEngine, holder: str = "one") -> Store:
    return Store(engine, await take(engine, holder))


def node(number: int, address: str = "") -> Node:
    return Node(NodeId(number), NodeKind.STORAGE, f"d{number}", address, incarnation=0)


async def fill(writer: Writer) -> None:
    writer.cluster.cluster_id = "c"
    for number in (3, 1, 2):
        writer.put_node(node(number))
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
        return len(writer.routing.nodes)

    async def touch(writer: Writer) -> None:
        writer.put_node(node(1, "a:1"))

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


async def _change_anything(writer: Writer, dice: SeededRandom) -> None:
    """One kind of change or two, of everything that a routing has."""
    routing, number = writer.routing, 1 + dice.below(4)
    for kind in {dice.below(8), dice.below(8)}:
        match kind:
            case 0:
                writer.put_node(node(number, f"a:{dice.below(9)}"))
            case 1:
                writer.drop_node(NodeId(number))
            case 2:
                chain = routing.chains[ChainId(1 + dice.below(2))]
                member = ChainMember(TargetId(900 + number), PublicState.OFFLINE)
                after = Chain(chain.chain_id, chain.version + 1, (*chain.members[:3], member))
                writer.put_chains([after], [Target(member.target_id, NodeId(number), chain.chain_id)])
            case 3:
                writer.drop_target(TargetId(900 + number))
            case 4:
                target = TARGETS[dice.below(len(TARGETS))]
                writer.put_target(dataclasses.replace(target, store_id=dice.below(5), hold=Hold(dice.below(4))))
            case 5:
                writer.put_table(
                    pb.ChainTable(table_id=number, chains=[1, 2], min_replicas=dice.below(3), replicas=dice.below(3))
                )
            case 6:
                writer.cluster.default_table = dice.below(3)
                writer.put_cluster()
            case _:
                writer.put_generation(pb.SeenStore(target_id=number, generation=1))
    if dice.chance(0.1):
        raise NotFound("this attempt changes its mind")


@pytest.mark.parametrize("seed", range(10))
async def test_the_routing_that_is_kept_is_what_the_store_has(seed: int) -> None:
    clock, dice = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=dice, conflict_rate=0.1, unknown_rate=0.2, clock=clock)
    store = Store(engine, await take(engine, "one", clock=clock, random=dice))
    await store.change(fill)

    async def change_often() -> None:
        for _ in range(20):
            with contextlib.suppress(NotFound):
                _, routing = await store.change(lambda writer: _change_anything(writer, dice))
                stored = await store.load()
                if stored.version == routing.version:
                    assert stored == routing
                    for kept, read in ((routing.nodes, stored.nodes), (routing.targets, stored.targets)):
                        assert list(kept) == list(read), "in the same order"

    await asyncio.gather(change_often(), change_often())
    _, routing = await store.change(_look)
    assert routing == await store.load()


async def _look(writer: Writer) -> None:
    pass


class _Counted(MemoryEngine):
    """Counts the ranges that transactions read."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = 0
        self.lose_answers = 0  # to so many commits, which are done

    async def commit(self, attempt: BufferedTransaction) -> None:
        self.ranges += len(attempt.reads.ranges)
        await super().commit(attempt)
        if self.lose_answers:
            self.lose_answers -= 1
            raise MaybeCommitted("the answer was lost")

    async def confirm(self, attempt: BufferedTransaction) -> None:
        self.ranges += len(attempt.reads.ranges)
        await super().confirm(attempt)


async def test_only_the_first_change_of_a_term_and_one_of_unknown_outcome_read_the_routing() -> None:
    engine = _Counted()
    store = await open_store(engine)
    await store.change(fill)
    engine.ranges = 0

    async def touch(writer: Writer) -> None:
        if not writer.routing.nodes[NodeId(1)].address:
            writer.put_node(node(1, "a:1"))

    await store.change(_look)
    await store.change(touch)
    assert engine.ranges == 0
    engine.lose_answers = 1

    async def touch_other(writer: Writer) -> int:
        if not writer.routing.nodes[NodeId(2)].address:
            writer.put_node(node(2, "a:2"))
        return writer.routing.version

    assert (await store.change(touch_other))[0] == 3, "the second attempt has seen what the first one has done"
    assert engine.ranges == READ_RANGES
    await store.change(_look)
    assert engine.ranges == READ_RANGES
    new = await open_store(engine, "two")
    _, routing = await new.change(_look)
    assert engine.ranges == 2 * READ_RANGES and routing.nodes[NodeId(2)].address == "a:2"


async def test_a_change_conflicts_with_any_other_one_though_it_reads_nothing_of_it() -> None:
    store = await open_store(MemoryEngine())
    await store.change(fill)
    attempts = 0

    async def touch(writer: Writer) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await store.change(drain)
        writer.put_node(dataclasses.replace(writer.routing.nodes[NodeId(1)], address="a:1"))

    async def drain(writer: Writer) -> None:
        writer.put_node(dataclasses.replace(writer.routing.nodes[NodeId(1)], draining=True))

    _, routing = await store.change(touch)
    assert attempts == 2, "another one has changed the routing since it has begun"
    assert routing.nodes[NodeId(1)] == dataclasses.replace(node(1, "a:1"), draining=True)


async def test_a_store_that_has_gone_back_is_changed_no_more() -> None:
    clock = SteppedClock()
    engine = MemoryEngine(clock=clock)
    store = Store(engine, await take(engine, "one", clock=clock))
    await store.change(fill)
    pairs = await engine.begin().get_range(b"", b"\xff")
    await store.change(_drop_first)
    tx = engine.begin()
    for key, value in pairs:
        tx.set(key, value)
    await tx.commit()
    with pytest.raises(Conflict, match="the routing has version 2, and the store shows version 1"):
        await store.change(_drop_first)


async def _drop_first(writer: Writer) -> None:
    writer.drop_node(NodeId(1))


@pytest.mark.parametrize("seed", range(5))
async def test_versions_rise_through_conflicts_and_unknown_commits(seed: int) -> None:
    clock, dice = SteppedClock(), SeededRandom(seed)
    engine = MemoryEngine(random=dice, conflict_rate=0.2, unknown_rate=0.2, clock=clock)
    store = Store(engine, await take(engine, "one", clock=clock, random=dice))

    async def register(number: int) -> int:
        async def write(writer: Writer) -> None:
            writer.put_node(node(number, f"a:{number}"))

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
