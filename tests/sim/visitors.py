"""Processes that hold many connections to a service, up to the most that it takes (I20).

AT visitors HOST FOR     they open as many connections to the host as they can, and call on each of them
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.clock import SimClock
from tests.harness.simulated.loop import Process
from tests.sim.net import SimNet
from tests.sim.world import PORT, World
from threefs.errors import ThreefsError
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import SPACE_INFO, STAT_FS
from threefs.wire import meta_pb2, storage_pb2

KIND = "visitors"
LASTS_S = (0.5, 3.0)
_FROM = "x2"
_PAUSE_S = 0.1


class Visitors:
    def __init__(self, world: World) -> None:
        self.refused = 0  # attempts to connect, or to call
        self.answered = 0
        self._world = world
        self._random = SeededRandom(world.seed, "visitors")
        self._made = 0

    def begin(self, host: str) -> Callable[[], Any]:
        """How to end it."""
        self._made += 1
        process = Process(self._world.loop, f"visitors.{self._made}", _FROM)
        process.start(self._visit(process, host))
        return process.kill

    async def _visit(self, process: Process, host: str) -> None:
        """More of them than the service takes: the last ones try again and again."""
        async with asyncio.TaskGroup() as visits:
            for _ in range(self._world.size.connections + 4):
                visits.create_task(self._stay(process, host))

    async def _stay(self, process: Process, host: str) -> None:
        identity = Identity("", self._random.token(16).hex(), self._world.size.key, "visitor")
        clock = SimClock(self._world.loop, process=process)
        peers = ConnectionPool(SimNet(self._world.fabric, process), identity, clock=clock)
        await asyncio.sleep(self._random.uniform(0.0, _PAUSE_S))
        while True:
            try:
                if host in self._world.meta_hosts:
                    await peers.call(f"{host}:{PORT}", STAT_FS, meta_pb2.StatFsRequest(), timeout_s=1.0)
                else:
                    await peers.call(f"{host}:{PORT}", SPACE_INFO, storage_pb2.SpaceInfoRequest(), timeout_s=1.0)
                self.answered += 1
            except ThreefsError:
                self.refused += 1
            await asyncio.sleep(self._random.uniform(_PAUSE_S, 4 * _PAUSE_S))


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moment, kind, host and time of each."""
    steps = []
    at = dice.uniform(0.0, 2.0)
    while at < length_s:
        hosts = [*world.storage_hosts, *world.meta_hosts]
        host = hosts[dice.below(len(hosts))]
        steps.append((at, KIND, host, dice.uniform(*LASTS_S)))
        at += dice.uniform(1.0, 6.0)
    return steps
