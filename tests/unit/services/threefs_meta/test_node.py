"""A meta service put together, with a manager beside it."""

import asyncio
import itertools
from pathlib import Path

import pytest
from threefs_manager.election import Election
from threefs_manager.service import Manager
from threefs_meta.node import MetaNode
from threefs_meta.settings import Settings

from tests.harness.processes import free_port
from tests.harness.prometheus import families, scrape
from tests.harness.rpc import identity
from tests.harness.solo_manager import SoloManager
from threefs.background import cancel_and_wait
from threefs.cluster.manager_client import FramedManagerClient
from threefs.configuration import KEYS, Role
from threefs.env.net import RealNet
from threefs.errors import Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import STAT_FS
from threefs.rpc.server import Server
from threefs.wire import manager_pb2, meta_pb2

PLAN = manager_pb2.InitRequest(storage=[manager_pb2.PlannedNode(node_id=1)], replicas=1, targets_per_disk=1)


async def test_it_answers_nothing_before_it_knows_the_chains(tmp_path: Path) -> None:
    """Found by simulation: a file made in that moment was refused for good, for want of a chain table."""
    silent = Server(RealNet(), identity(""))  # a manager that is not there yet
    address = await silent.start("127.0.0.1", 0)
    node = MetaNode(
        Settings(data_dir=tmp_path, manager=address, control=""),
        net=RealNet(),
        engine=MemoryEngine(),
        managers=lambda peers: FramedManagerClient(peers, address),
    )
    starting = asyncio.create_task(node.start())
    while not node.address:
        await asyncio.sleep(0.01)
    peers = ConnectionPool(RealNet(), identity(""))
    with pytest.raises(Unavailable, match="is starting"):
        await peers.call(node.address, STAT_FS, meta_pb2.StatFsRequest(), timeout_s=5)
    await cancel_and_wait(starting)
    await peers.close()
    await node.stop()
    await silent.stop(1.0)


async def test_it_registers_serves_and_stops(tmp_path: Path) -> None:
    engine = MemoryEngine()
    server = Server(RealNet(), identity(""))
    manager = Manager(
        engine, Election(engine, "one", length_s=1.0, exclusive=True), lease_s=5.0, on_cluster=server.join
    )
    manager.bind(server)
    address = await server.start("127.0.0.1", 0)
    running = asyncio.create_task(manager.run())
    await manager.leading.wait()
    await manager.init(PLAN)
    node = MetaNode(
        Settings(data_dir=tmp_path, manager=address, control=""),
        net=RealNet(),
        engine=MemoryEngine(),
        managers=lambda peers: FramedManagerClient(peers, address),
    )
    await node.start()
    peers = ConnectionPool(RealNet(), identity(""))
    reply = await peers.call(node.address, STAT_FS, meta_pb2.StatFsRequest(), timeout_s=5)
    assert reply.replicas == 1
    assert manager._publisher.routing.meta_addresses() == (node.address,)
    await peers.close()
    await node.stop()
    await manager.resign()
    await cancel_and_wait(running)
    await server.stop(1.0)


async def test_a_running_service_takes_new_values(tmp_path: Path) -> None:
    async with SoloManager() as solo:
        node = MetaNode(
            Settings(data_dir=tmp_path, manager=solo.address, control="", removals_at_once=5),
            net=RealNet(),
            engine=MemoryEngine(),
            managers=lambda peers: FramedManagerClient(peers, solo.address),
        )
        await node.start()
        values = node._configuration
        assert set(values._applies) == {name for name, key in KEYS.items() if Role.META in key.roles}
        await solo.set_values({"listing_cache_bytes": "1000", "removals_at_once": "7"})
        while values.current.version == 0:
            await asyncio.sleep(0.01)
        assert node._context.listing_cache._max_bytes == 1000
        assert node._garbage_collector._slots._value == 5, "the settings file wins"
        await node.stop()


class FailingEngine(MemoryEngine):
    is_embedded = True
    fails = False

    def begin(self) -> BufferedTransaction:
        if self.fails:
            raise Unavailable("the table of this service has failed")
        return super().begin()


async def test_a_scrape_succeeds_while_the_store_fails(tmp_path: Path) -> None:
    """What has failed is counted there."""
    async with SoloManager() as solo:
        engine, port = FailingEngine(), free_port()
        node = MetaNode(
            Settings(data_dir=tmp_path, manager=solo.address, control="", metrics_port=port),
            net=RealNet(),
            engine=engine,
            managers=lambda peers: FramedManagerClient(peers, solo.address),
        )
        await node.start()
        for engine.fails in (False, True):
            found = families(await asyncio.to_thread(scrape, port))
            assert [one.value for one in found["threefs_meta_store_answers"].samples] == [not engine.fails]
            (free,), (capacity,) = (found[f"threefs_store_disk_{what}_bytes"].samples for what in ("free", "capacity"))
            assert 0 <= free.value < capacity.value
            assert {"threefs_meta_transactions", "threefs_rpc_calls", "threefs_build_info"} <= set(found)
        engine.fails = False
        await node.stop()


class ReopenedEngine(MemoryEngine):
    """Cannot be used for a moment."""

    begun = 0
    fails_at = -1

    def begin(self) -> BufferedTransaction:
        self.begun += 1
        if self.begun - 1 == self.fails_at:
            raise Unavailable("the table of this service has failed, and is being opened again")
        return super().begin()


async def test_it_starts_though_its_damaged_store_is_opened_again_meanwhile(tmp_path: Path) -> None:
    """Whatever meets the damage first: the process ended, and met it again at each start."""
    async with SoloManager() as solo:
        engine = ReopenedEngine()
        for engine.fails_at in itertools.count():
            engine.begun = 0
            node = MetaNode(
                Settings(data_dir=tmp_path, manager=solo.address, control=""),
                net=RealNet(),
                engine=engine,
                managers=lambda peers: FramedManagerClient(peers, solo.address),
            )
            await node.start()
            was_last = engine.begun <= engine.fails_at
            await node.stop()
            if was_last:
                break
        assert engine.fails_at > 5
