"""A storage node dies for good: an administrator has its targets moved to others, and removes it.

AT gone HOST     once all are well its process dies, or reaches nobody until it is removed: then it ends by itself. It
                 goes on only if its targets find no place in time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.harness.seeded_random import SeededRandom
from tests.sim.administrator import administer
from tests.sim.emptied_disks import EmptiedDisks
from tests.sim.world import LEASE_S, World
from threefs.errors import InvalidArgument, NotFound
from threefs.rpc.methods import REBALANCE, REMOVE_NODE, SET_DRAINING, Method, Rep, Req
from threefs.wire import manager_pb2 as pb

KIND = "gone"
_CALM_S = 8 * LEASE_S
_NOTICED_S = (0.0, 2 * LEASE_S)  # until the administrator does something
_REMOVED_S = 20 * LEASE_S
_LOOK_S = 0.05
#: Once it has been told: so long a process waits for its targets to be set aside, and then some.
_ENDS_S = 15.0 + 2 * LEASE_S


class RemovedNodes:
    def __init__(self, world: World, empties: EmptiedDisks) -> None:
        self._world = world
        self._empties = empties
        self._dice = SeededRandom(world.seed, "gone")
        self._asked = 0
        self._works: list[asyncio.Task[None]] = []
        self._told_by: dict[str, float] = {}  # of removed nodes: when what they send gets to the managers again
        self.violations: list[str] = []

    def begin(self, host: str) -> Callable[[], Any]:
        self._works.append(self._world.loop.create_task(self._run(host)))
        return lambda: None

    async def settle(self) -> None:
        """Wait until each has been removed, or runs again. Processes of removed nodes end."""
        for work in self._works:
            await work
        for host, told_by in self._told_by.items():
            process = self._world.processes[host]
            process.resume()
            until = max(self._world.loop.time(), told_by) + _ENDS_S
            while process.alive and self._world.loop.time() < until:
                await asyncio.sleep(_LOOK_S)
            if process.alive:
                self.violations.append(f"{process.name} goes on {_ENDS_S:.0f} s after it was told of its removal")
            self._world.kill(host)  # for those who look at all that runs

    async def _run(self, host: str) -> None:
        world = self._world
        if not await self._is_spare(host):
            return
        world.gone.add(host)
        links = [pair for other in world.hosts if other != host for pair in ((host, other), (other, host))]
        if self._dice.chance(0.5):
            world.kill(host)
            links.clear()
        for link in links:
            world.fabric.block(*link)
        began = world.loop.time()
        await asyncio.sleep(self._dice.uniform(*_NOTICED_S))
        is_removed = await self._is_removed(host)
        for link in links:
            world.fabric.unblock(*link)
        if is_removed:
            world.storage_hosts.remove(host)
            now = world.loop.time()
            self._told_by[host] = now + (now - began)  # with the next retransmission
            world.tell(f"-- the node of {host} is removed")
            return
        world.tell(f"{host} is not removed, and goes on")
        world.gone.discard(host)
        await self._ask(SET_DRAINING, pb.SetDrainingRequest(node_id=int(host[1:]), draining=False))
        await self._ask(REBALANCE, pb.RebalanceRequest())
        if host not in world.fabric.down:
            world.start(host)

    async def _is_spare(self, host: str) -> bool:
        """Whether a moment comes in which all have what this host has."""
        until = self._world.loop.time() + _CALM_S
        while self._world.loop.time() < until:
            if host in self._world.storage_hosts and not self._world.gone and self._empties.spare():
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _is_removed(self, host: str) -> bool:
        node = int(host[1:])
        until = self._world.loop.time() + _REMOVED_S
        while self._world.loop.time() < until:
            # Again each time: another administrator may have let it keep its targets.
            if not await self._ask(SET_DRAINING, pb.SetDrainingRequest(node_id=node, draining=True)):
                return False
            if await self._ask(REMOVE_NODE, pb.RemoveNodeRequest(node_id=node)):
                return True
            await asyncio.sleep(LEASE_S / 4)
        return False

    async def _ask(self, method: Method[Req, Rep], request: Req) -> bool:
        self._asked += 1
        try:
            await administer(self._world, f"admin.gone.{self._asked}", method, request)
            return True
        except (InvalidArgument, NotFound) as error:
            self._world.tell(f"the administrator is refused: {error}")
            return False


def draw(dice: SeededRandom, world: World, length_s: float) -> list[tuple[float, str, str, float]]:
    """Moment, kind, host and time; and one that may take what it had."""
    at = dice.uniform(0.1, 1.0) * length_s
    host = world.storage_hosts[dice.below(len(world.storage_hosts))]
    return [(at / 2, "join", world.spare_hosts[0], 0.0), (at, KIND, host, 0.0)]
