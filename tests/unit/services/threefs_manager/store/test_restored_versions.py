import asyncio

from threefs_manager.stale_stores.metadata_store import admit
from threefs_manager.store.cluster_store import Writer, read_routing
from threefs_manager.store.restored_versions import (
    epoch_at,
    raise_routing_version,
    raised_routing_version,
    with_raised_version,
    without_serving,
)

from tests.harness.manager_bench import Bench
from tests.unit.services.threefs_manager.test_service import PLAN
from threefs.cluster.manager_records import FIRST_ADDED_TARGET, FIRST_META_NODE, METADATA_KEY
from threefs.ids import ChainId, TargetId
from threefs.kv import records
from threefs.kv.restore_mark import read_mark, write_mark
from threefs.routing import EMPTY, Chain, ChainMember, PublicState
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
    assert (
        with_raised_version(Chain(ChainId(1), 7, MEMBERS), (1_735_689_600 + 30 * 365 * 86400) * 10**9).version < 1 << 32
    )


def test_epochs_of_inode_numbers_that_are_made_from_the_clock_fit_into_their_bits() -> None:
    assert 500_000 < epoch_at(NOW_NS) < epoch_at(NOW_NS + 128 * 10**9) < 1 << 23
    assert epoch_at(0) == 0, "a clock that was never set"
    assert epoch_at(1 << 63) == 1 << 23, "a clock that is wrong"


async def test_the_same_backups_restored_twice_give_no_epoch_twice() -> None:
    """I15: between the two times the metadata had the epoch that the first one gave."""
    epochs = []
    for wall_ns in (NOW_NS, NOW_NS + 200 * 10**9):
        bench = Bench()  # with the store as the backup has it
        tx = bench.engine.begin()
        write_mark(tx, complete=True)
        tx.set(METADATA_KEY, records.encode(pb.MetadataStore(store_id="aa", epoch=3, generation=9)))
        await raise_routing_version(Writer(tx, pb.ClusterRecord(), EMPTY), wall_ns)
        request = pb.AdmitStoreRequest(cluster_id="c", store_id="aa", epoch=3, generation=9, restored=True)
        epochs.append((await admit(tx, "c", request)).epoch)
    assert 3 < epochs[0] < epochs[1]


async def test_ids_that_may_have_been_given_out_since_the_backup_are_skipped() -> None:
    bench = Bench()
    tx = bench.engine.begin()
    write_mark(tx, complete=True)
    record = pb.ClusterRecord(next_target=FIRST_ADDED_TARGET + 5, next_meta_node=FIRST_META_NODE + 3)
    writer = Writer(tx, record, EMPTY)
    await raise_routing_version(writer, NOW_NS)
    assert writer.cluster.next_target > FIRST_ADDED_TARGET + 1000
    assert writer.cluster.next_meta_node > FIRST_META_NODE + 1000


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
