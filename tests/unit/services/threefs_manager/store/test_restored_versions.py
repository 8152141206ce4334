import asyncio

from threefs_manager.store.cluster_store import read_routing
from threefs_manager.store.restored_versions import raised_routing_version, with_raised_version, without_serving

from tests.harness.manager_bench import Bench
from tests.unit.services.threefs_manager.test_service import PLAN
from threefs.ids import ChainId, TargetId
from threefs.kv.restore_mark import read_mark, write_mark
from threefs.routing import Chain, ChainMember, PublicState
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
