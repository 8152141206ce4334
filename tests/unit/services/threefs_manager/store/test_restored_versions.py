import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from threefs_manager.stale_stores.metadata_store import admit
from threefs_manager.store.cluster_store import Store, Writer, read_cluster, read_routing, retry_forever
from threefs_manager.store.restore_inquiry import Inquiry
from threefs_manager.store.restored_versions import (
    adopt,
    adopted_chains,
    epoch_at,
    highest_target,
    number_at,
    raise_routing_version,
    raised_routing_version,
    with_raised_version,
    without_serving,
    write_adopted,
)
from threefs_meta.store.identity import EPOCH_BITS

from tests.harness.clocks import SteppedClock
from tests.harness.manager_bench import Bench
from tests.harness.seeded_random import SeededRandom
from tests.harness.terms import take
from tests.unit.services.threefs_manager.test_service import PLAN
from threefs.cluster.manager_records import FIRST_ADDED_TARGET, FIRST_META_NODE, METADATA_KEY
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv import records, retry
from threefs.kv.engine_api import MAX_TRANSACTION_KEYS, Transaction
from threefs.kv.memory import MemoryEngine
from threefs.kv.restore_mark import read_mark, write_mark
from threefs.routing import (
    EMPTY,
    Chain,
    ChainMember,
    Node,
    NodeKind,
    PublicState,
    Routing,
    Target,
    chain_to_wire,
    target_to_wire,
)
from threefs.telemetry.damaged_records import DamagedRecords
from threefs.wire import manager_pb2 as pb

MEMBERS = (ChainMember(TargetId(101), PublicState.SERVING),)
NOW_NS = 1_800_000_000 * 10**9


def test_versions_rise_beyond_what_counting_reaches_and_never_fall() -> None:
    chain = with_raised_version(Chain(ChainId(1), 7, MEMBERS), NOW_NS)
    assert 10_000_000 < chain.version < 1 << 32
    assert with_raised_version(chain, NOW_NS).version == chain.version + 1
    assert with_raised_version(Chain(ChainId(1), 7, MEMBERS), NOW_NS + 60 * 10**9).version > chain.version + 100
    assert with_raised_version(Chain(ChainId(1), 7, MEMBERS), 0).version == 8, "a clock that was never set"
    assert raised_routing_version(5, NOW_NS) > 1 << 60
    assert raised_routing_version(1 << 63, NOW_NS) == 1 << 63
    assert raised_routing_version(5, NOW_NS + 1_000_000) > raised_routing_version(5, NOW_NS) + 1_000_000
    assert (
        with_raised_version(Chain(ChainId(1), 7, MEMBERS), (1_735_689_600 + 30 * 365 * 86400) * 10**9).version < 1 << 32
    )


def test_epochs_of_inode_numbers_that_are_made_from_the_clock_fit_into_their_bits() -> None:
    assert 500_000 < epoch_at(NOW_NS) < epoch_at(NOW_NS + 128 * 10**9) < 1 << 23
    assert epoch_at(0) == 0, "a clock that was never set"
    assert epoch_at(1 << 63) == 1 << 23, "a clock that is wrong"


@pytest.mark.parametrize("between_ns", [200 * 10**9, 10**9, 10**6])
async def test_the_same_backups_restored_twice_give_no_number_twice(between_ns: int) -> None:
    """I15: between the two times the metadata had the numbers that the first one gave."""
    first_numbers = []
    for wall_ns in (NOW_NS, NOW_NS + between_ns):
        bench = Bench()  # with the store as the backup has it
        tx = bench.engine.begin()
        write_mark(tx, complete=True)
        tx.set(METADATA_KEY, records.encode(pb.MetadataStore(store_id="aa", epoch=3, generation=9)))
        await raise_routing_version(Writer(tx, pb.ClusterRecord(), EMPTY, DamagedRecords()), wall_ns)
        request = pb.AdmitStoreRequest(cluster_id="c", store_id="aa", epoch=3, generation=9, restored=True)
        given = await admit(tx, "c", request)
        assert given.epoch > 3
        first_numbers.append((given.epoch << EPOCH_BITS) + given.first_number)
        running = pb.AdmitStoreRequest(cluster_id="c", store_id="aa", epoch=given.epoch, generation=10)
        assert await admit(tx, "c", running) == given
    assert first_numbers[1] - first_numbers[0] > between_ns, "more than are given out in that time"


def test_numbers_within_an_epoch_leave_room_behind_them() -> None:
    for passed_s in range(0, 1000, 7):
        assert 0 <= number_at(NOW_NS + passed_s * 10**9) < 1 << (EPOCH_BITS - 1)
    assert number_at(0) == 0, "a clock that was never set"


async def test_ids_that_may_have_been_given_out_since_the_backup_are_skipped() -> None:
    bench = Bench()
    tx = bench.engine.begin()
    write_mark(tx, complete=True)
    record = pb.ClusterRecord(next_target=FIRST_ADDED_TARGET + 5, next_meta_node=FIRST_META_NODE + 3)
    writer = Writer(tx, record, EMPTY, DamagedRecords())
    await raise_routing_version(writer, NOW_NS)
    assert writer.cluster.next_target > FIRST_ADDED_TARGET + 1000
    assert writer.cluster.next_meta_node > FIRST_META_NODE + 1000


def test_a_number_that_no_cluster_reaches_uses_up_no_others() -> None:
    """A process that is broken says it, or the name of a directory does."""
    far = FIRST_ADDED_TARGET + 9000
    for false in (101, FIRST_ADDED_TARGET, (1 << 31) + 1, (1 << 32) - 1):
        stores = [pb.Store(target_id=false)]
        assert highest_target(pb.RegisterRequest(highest_target=false, unnamed_stores=stores)) == 0
        assert highest_target(pb.RegisterRequest(highest_target=far, unnamed_stores=stores)) == far
    stores = [pb.Store(target_id=101), pb.Store(target_id=far)]
    assert highest_target(pb.RegisterRequest(unnamed_stores=stores)) == far, "an older release names its stores"


def test_the_target_that_served_last_returns_as_if_all_had_died() -> None:
    def chain(*states: PublicState) -> Chain:
        return Chain(ChainId(1), 7, tuple(ChainMember(TargetId(n), state) for n, state in enumerate(states)))

    served, last, out = PublicState.SERVING, PublicState.LASTSRV, PublicState.OFFLINE
    assert without_serving(chain(served, served, PublicState.SYNCING)) == chain(last, last, out)
    assert without_serving(chain(served, PublicState.WAITING, out)) == chain(last, out, out)
    assert without_serving(chain(last, last, out)) == chain(last, last, out)


async def test_the_primary_raises_them_once_after_a_restore() -> None:
    bench = Bench()
    manager = await bench.start()
    await manager.init(PLAN)
    before = await read_routing(bench.engine.begin())
    tx = bench.engine.begin()
    write_mark(tx, complete=True)
    await tx.commit()
    manager = await bench.start()
    bench.clock.advance(10.0)
    await manager.accept_unheard(pb.AcceptUnheardRequest(nodes=[1, 2, 3]))
    while manager._inquiry is not None:
        await asyncio.sleep(0)
    after = await read_routing(bench.engine.begin())
    assert after.version > before.version and await read_mark(bench.engine.begin()) is None
    assert all(after.chains[chain].version > before.chains[chain].version for chain in before.chains)
    await bench.start()
    assert await read_routing(bench.engine.begin()) == after
    await bench.stop()


async def restored_store(engine: MemoryEngine, holder: str, clock: SteppedClock) -> tuple[Store, Routing]:
    """As a primary has it at the beginning of a term."""
    store = Store(engine, await take(engine, holder, clock=clock, random=SeededRandom(2)))
    is_restored, routing = await retry_forever(
        partial(store.change, lambda writer: raise_routing_version(writer, NOW_NS)), clock
    )
    assert is_restored
    return store, routing


async def fill(engine: MemoryEngine, clock: SteppedClock, chains: Sequence[Chain], nodes: int) -> None:
    """A store that was loaded from a backup. Target NNN is of node N."""
    store = Store(engine, await take(engine, "before", clock=clock, random=SeededRandom(2)))

    async def write(writer: Writer, some: Sequence[Chain]) -> None:
        for number in range(1, nodes + 1):
            writer.put_node(Node(NodeId(number), NodeKind.STORAGE, f"d{number}", f"host:{number}", 1))
        members = [(member.target_id, chain.chain_id) for chain in some for member in chain.members]
        writer.put_chains(some, [Target(target, NodeId(target // 100_000), chain, 7) for target, chain in members])

    for first in range(0, len(chains), 1000):
        await retry_forever(partial(store.change, partial(write, some=chains[first : first + 1000])), clock)
    await retry.run(engine, _mark, clock=clock, random=SeededRandom(2), replayable=True)


async def _mark(tx: Transaction) -> None:
    write_mark(tx, complete=True)


def serving(chain: int, *targets: int) -> Chain:
    return Chain(ChainId(chain), 5, tuple(ChainMember(TargetId(target), PublicState.SERVING) for target in targets))


async def test_a_store_with_more_chains_than_fit_into_a_transaction_is_adopted() -> None:
    clock, dice = SteppedClock(), SeededRandom(1)
    engine = MemoryEngine(random=dice, conflict_rate=0.05, unknown_rate=0.05, clock=clock)
    await fill(engine, clock, [serving(n, 100_000 + n) for n in range(1, MAX_TRANSACTION_KEYS + 1001)], nodes=1)
    store, before = await restored_store(engine, "one", clock)
    after = await adopt(store, adopted_chains(before, {}, NOW_NS), 0, clock)
    assert after == await store.load() and after.version > before.version
    assert len(after.chains) == MAX_TRANSACTION_KEYS + 1000
    assert all(chain.version > 100 and not chain.serving for chain in after.chains.values())
    assert await read_mark(engine.begin()) is None


async def test_a_store_without_chains_is_settled_as_well() -> None:
    clock = SteppedClock()
    engine = MemoryEngine(random=SeededRandom(1), clock=clock)
    await fill(engine, clock, [], nodes=1)
    store, before = await restored_store(engine, "one", clock)
    await adopt(store, adopted_chains(before, {}, NOW_NS), 0, clock)
    assert await read_mark(engine.begin()) is None


@pytest.mark.parametrize("adopted_before", [0, 1, 2])
async def test_a_primary_that_takes_over_while_chains_are_adopted_begins_anew(adopted_before: int) -> None:
    """Since the backup, the second target of chain 1 has moved to node 3, and served alone in the end."""
    clock = SteppedClock()
    engine = MemoryEngine(random=SeededRandom(1), clock=clock)
    await fill(engine, clock, [serving(1, 100_001, 200_001), serving(2, 200_002)], nodes=2)
    here, gone = TargetId(100_001), TargetId(200_001)
    came = Target(TargetId(FIRST_ADDED_TARGET + 9000), NodeId(3), ChainId(1), 7)
    newest = Chain(
        ChainId(1), 9, (ChainMember(came.target_id, PublicState.SERVING), ChainMember(here, PublicState.OFFLINE))
    )
    store, routing = await restored_store(engine, "one", clock)
    kept = pb.KeptChain(
        chain=chain_to_wire(newest), targets=[target_to_wire(one) for one in (came, routing.targets[here])]
    )
    adopted = adopted_chains(routing, {ChainId(1): kept}, NOW_NS)
    await store.change(partial(write_adopted, batch=adopted[:adopted_before], known=[came.target_id], is_last=False))

    store, routing = await restored_store(engine, "two", clock)
    assert (await read_cluster(engine.begin())).next_target > came.target_id, "no id is given out again"
    inquiry = Inquiry(routing, clock)
    other = pb.KeptChain(chain=chain_to_wire(serving(2, 200_002)))
    for node, target, what in ((1, here, kept), (2, 200_002, other), (3, came.target_id, kept)):
        assert not inquiry.done.is_set()
        inquiry.on_register(
            pb.RegisterRequest(node_id=node, unnamed_stores=[pb.Store(target_id=target, store_id=7, kept=what)])
        )
    assert inquiry.done.is_set(), "the target that has left keeps nothing of it any more"
    after = await adopt(store, adopted_chains(routing, inquiry.newest_chains, NOW_NS), inquiry.highest_target, clock)
    states = [(member.target_id, member.state) for member in after.chains[ChainId(1)].members]
    assert states == [(came.target_id, PublicState.LASTSRV), (here, PublicState.OFFLINE)]
    assert {member.state for member in after.chains[ChainId(2)].members} == {PublicState.LASTSRV}
    assert (after.nodes[NodeId(3)].kind, after.nodes[NodeId(3)].domain) == (NodeKind.STORAGE, "unknown-3")
    assert after.targets[came.target_id] == came
    assert gone in after.targets, "its record goes when its node says that it keeps nothing"
    assert all(chain.version > 100 for chain in after.chains.values())
    assert await read_mark(engine.begin()) is None
