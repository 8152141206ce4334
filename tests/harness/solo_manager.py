"""A manager over a store in memory that serves on a real socket, for services that are put together in the test."""

import asyncio
from collections.abc import Mapping

from threefs_manager.election import Election
from threefs_manager.service import Manager

from tests.harness.rpc import identity
from threefs.background import cancel_and_wait
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.kv.memory import MemoryEngine
from threefs.rpc.server import Server
from threefs.wire import manager_pb2 as pb

_PLAN = pb.InitRequest(storage=[pb.PlannedNode(node_id=1)], replicas=1, targets_per_disk=1, lease_ms=2000)


class SoloManager:
    """Of a cluster with one storage node, number 1."""

    def __init__(self) -> None:
        engine = MemoryEngine()
        self.server = Server(RealNet(), identity(""))
        self.manager = Manager(
            engine, Election(engine, "one", length_s=0.4, exclusive=True), lease_s=2.0, on_cluster=self.server.join
        )

    async def __aenter__(self) -> "SoloManager":
        self.manager.bind(self.server)
        self.address = await self.server.start("127.0.0.1", 0)
        self._running = asyncio.create_task(self.manager.run())
        await self.manager.leading.wait()
        await self.manager.init(_PLAN)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.resign()
        await cancel_and_wait(self._running)
        await self.server.stop(1.0)

    async def set_values(self, texts: Mapping[str, str]) -> None:
        keeper = self.manager._configuration
        changes = [pb.ConfigurationChange(name=name, value=text) for name, text in texts.items()]
        await keeper.set(
            pb.SetConfigurationRequest(known_version=keeper.current.version, changes=changes, call_id=RANDOM.token(16))
        )
