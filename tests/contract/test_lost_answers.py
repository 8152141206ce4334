"""A transaction of the manager was made, and the store could not be asked again: its caller gets an error. What it has
changed counts nevertheless, and soon, without another change: nobody may ask for it again."""

import asyncio

import pytest
from threefs_manager.election import Election
from threefs_manager.service import Manager
from threefs_manager.store.cluster_store import Store, Writer

from tests.harness import beating_nodes
from tests.harness.beating_nodes import Bench
from tests.harness.chain_harness import until
from tests.harness.moving_nodes import MovingNodes, run_moving
from tests.harness.silent_engine import SilentEngine
from tests.harness.terms import take
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.cluster.manager_records import CHAIN, CLUSTER_KEY, MOVE, TABLE
from threefs.errors import Conflict, Unavailable
from threefs.kv import records
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import PublicState
from threefs.wire import manager_pb2 as pb


class LosingEngine(SilentEngine):
    """Cannot be reached after the commit that is not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.after_silence = self._is_away

    async def _is_away(self) -> None:
        raise Unavailable("the store cannot be reached")


def settled(nodes: MovingNodes) -> bool:
    controller = nodes.manager._controller
    assert controller is not None
    return not controller.move_executor.moves and not controller.move_executor.balancing


async def add(nodes: MovingNodes, node: int) -> None:
    await nodes.manager.add_nodes(pb.AddNodesRequest(storage=[pb.PlannedNode(node_id=node)]))
    await nodes.join(node)


def test_disks_are_levelled() -> None:
    engine = LosingEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        engine.silent_about = CLUSTER_KEY
        with pytest.raises(Unavailable):
            await nodes.manager.rebalance(pb.RebalanceRequest())
        await nodes.until(lambda: nodes.held()[4] == 1 and settled(nodes))

    run_moving(body, engine)


def test_a_move_is_taken_back() -> None:
    engine = LosingEngine()

    async def body(nodes: MovingNodes) -> None:
        await add(nodes, 4)
        nodes.slow.add(4)
        await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=True))
        await nodes.until(lambda: bool(nodes.held()[4]))
        engine.silent_about = MOVE
        with pytest.raises(Unavailable):
            await nodes.manager.set_draining(pb.SetDrainingRequest(node_id=1, draining=False))
        await nodes.until(lambda: not nodes.held()[4] and settled(nodes))
        assert not nodes.routing.nodes[1].draining  # type: ignore[index]

    run_moving(body, engine)


def test_a_minimum_holds() -> None:
    engine = LosingEngine()

    async def body(nodes: MovingNodes) -> None:
        engine.silent_about = TABLE
        before = dict(nodes.routing.min_replicas)
        with pytest.raises(Unavailable):
            await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        assert nodes.routing.min_replicas == before != {1: 2}
        await nodes.until(lambda: nodes.routing.min_replicas == {1: 2})

    run_moving(body, engine)


def test_the_configuration_counts() -> None:
    """An administrator who looks at it sees that it is set."""
    engine = LosingEngine()

    async def body(nodes: MovingNodes) -> None:
        keeper = nodes.manager._configuration
        change = pb.ConfigurationChange(name="moves_filling_disk", value="3")
        engine.silent_about = b"CNFG"
        with pytest.raises(Unavailable):
            await keeper.set(pb.SetConfigurationRequest(changes=[change], call_id=bytes(16)))
        await nodes.until(lambda: keeper.current.version == 1)
        assert keeper.move_bounds().filling == 3 and nodes.manager._publisher.configuration.version == 1

    run_moving(body, engine)


def test_a_manager_notes_the_cluster_that_was_made() -> None:
    """Else its data directory stays without the id, and an empty store in the place of this one is taken for new."""
    engine, noted = LosingEngine(), list[str]()

    async def main() -> None:
        election = Election(engine, "one", length_s=0.1, exclusive=True, clock=LOOP_CLOCK)
        manager = Manager(engine, election, lease_s=0.3, clock=LOOP_CLOCK, on_cluster=noted.append)
        running = asyncio.create_task(manager.run())
        await manager.leading.wait()
        engine.silent_about = CLUSTER_KEY
        with pytest.raises(Unavailable):
            await manager.init(beating_nodes.PLAN)
        assert not noted
        await manager.register(pb.RegisterRequest(node_id=1, kind=pb.STORAGE, address="h1:1", incarnation=1))
        async with asyncio.timeout(20):
            await until(lambda: bool(noted))
        assert noted == [manager._publisher.routing.cluster_id]
        await cancel_and_wait(running)

    run_virtual(main())


async def check_failed_link(bench: Bench, engine: SilentEngine) -> None:
    await asyncio.sleep(0.1)
    assert [*bench.states()] == [1, 3, 2]
    engine.silent_about = CHAIN
    bench.unreachable[3] = pb.UnreachablePeer(node_id=2, unreachable_ms=300)
    await until(lambda: bench.states()[2] is PublicState.OFFLINE)
    await asyncio.sleep(0.1)
    assert engine.silent_about is None
    status = await bench.manager.get_status(pb.GetStatusRequest())
    assert status.link_removals == 1
    bench.unreachable.clear()
    await asyncio.sleep(0.1)
    assert bench.states()[2] is PublicState.OFFLINE, "its return waits for the hold-off"
    events = await bench.manager.chain_events(pb.ChainEventsRequest(chain_id=1))
    assert [event.chain.version for event in events.events] == [2]


@pytest.mark.parametrize("engine", [SilentEngine, LosingEngine])
def test_a_failed_link_for_which_a_target_was_put_out_is_noted(engine: type[SilentEngine]) -> None:
    made = engine()
    beating_nodes.run(lambda bench: check_failed_link(bench, made), made)


class SlowAnswer(MemoryEngine):
    """When `is_armed`, the answer about the transaction that says that disks are level waits for `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = self.is_held = False
        self.release = asyncio.Event()

    async def commit(self, attempt: BufferedTransaction) -> None:
        value = attempt.writes.get(CLUSTER_KEY)
        waits = self.is_armed and value and not records.decode(value, pb.ClusterRecord, CLUSTER_KEY).balancing
        await super().commit(attempt)
        if waits:
            self.is_armed, self.is_held = False, True
            await self.release.wait()


def test_disks_are_levelled_though_an_answer_of_before_says_that_they_are_level() -> None:
    engine = SlowAnswer()

    async def body(nodes: MovingNodes) -> None:
        await nodes.manager.rebalance(pb.RebalanceRequest())
        engine.is_armed = True
        await nodes.until(lambda: engine.is_held)
        await add(nodes, 4)
        await nodes.manager.rebalance(pb.RebalanceRequest())
        engine.release.set()
        await nodes.until(lambda: nodes.held()[4] == 1 and settled(nodes))

    run_moving(body, engine)


class LateEngine(MemoryEngine):
    """Does not answer the next change of a table, which is made much later."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.late: BufferedTransaction | None = None

    async def commit(self, attempt: BufferedTransaction) -> None:
        if self.is_late and any(key.startswith(TABLE) for key in attempt.writes):
            self.is_late, self.late = False, attempt
            raise Unavailable("no answer")
        await super().commit(attempt)


def test_what_the_store_was_read_again_for_is_not_made_later() -> None:
    engine = LateEngine()

    async def body(nodes: MovingNodes) -> None:
        engine.is_late = True
        with pytest.raises(Unavailable):
            await nodes.manager.set_min_replicas(pb.SetMinReplicasRequest(table_id=1, min_replicas=2))
        version = nodes.routing.version
        await nodes.until(lambda: nodes.routing.version > version)
        assert engine.late is not None
        with pytest.raises(Conflict):
            await MemoryEngine.commit(engine, engine.late)

    run_moving(body, engine)


async def test_an_error_before_the_commit_leaves_nothing_unknown() -> None:
    engine = MemoryEngine()
    store = Store(engine, await take(engine, "one"))

    async def refuse(writer: Writer) -> None:
        writer.put_cluster()
        raise Unavailable("the node is still in its chain")

    with pytest.raises(Unavailable):
        await store.change(refuse)
    assert not store.may_be_ahead


def test_a_store_is_read_again_only_after_a_lost_answer() -> None:
    async def body(nodes: MovingNodes) -> None:
        for _ in range(20):
            await nodes.step()
        version = nodes.routing.version
        for _ in range(100):
            await nodes.step()
        assert nodes.routing.version == version

    run_moving(body)
