"""A manager with storage nodes that follow it at once: each opens and drops targets as the routing says, and reports
every target as complete. On a loop whose time is virtual."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from threefs_manager.chains.transitions import must_give_way
from threefs_manager.election import Election
from threefs_manager.placement.chain_assignment import group_disks
from threefs_manager.placement.plan import Disk
from threefs_manager.service import Manager

from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.ids import ChainId, NodeId
from threefs.kv.memory import MemoryEngine
from threefs.routing import PublicState, Routing
from threefs.wire import manager_pb2 as pb

LEASE_S = 0.3


async def _place(
    disks: Sequence[Disk], replicas: int, targets_per_disk: int, others: Sequence[Sequence[NodeId]]
) -> list[list[NodeId]]:
    return group_disks(disks, replicas, targets_per_disk, others)  # without a thread, as time is virtual


class MovingNodes:
    """Nodes 1 to 3 with two copies of each chunk, and what joins them."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self.manager = self._new_manager()
        self.living: set[int] = set()
        self.store_id = 5  # of what each node keeps
        self.slow: set[int] = set()  # nodes whose targets are not brought up to date
        self.resyncs_proceed = False  # also those to slow nodes
        self.full: set[int] = set()  # nodes whose targets take no writes of clients
        self.left: set[int] = set()  # nodes whose targets have left their chains
        self.free_bytes: dict[int, int] = {}  # of the disks of nodes with little room
        self.capacity_bytes = 0  # of each disk
        self.used_bytes = 0  # of each target
        self.large: dict[ChainId, int] = {}  # of each target of chains that have more
        self.stay_on = False  # whether targets that are to leave keep their leases
        self._told: dict[int, int] = {}  # the version of the routing in the last answer to a node
        self._running: list[asyncio.Task[Any]] = [asyncio.create_task(self.manager.run())]

    def _new_manager(self) -> Manager:
        election = Election(self._engine, "one", length_s=0.1, exclusive=True, clock=LOOP_CLOCK)
        return Manager(self._engine, election, lease_s=LEASE_S, clock=LOOP_CLOCK, place=_place)

    async def restart_manager(self) -> None:
        """The new one has heard of no node yet. Nobody may beat meanwhile."""
        await cancel_and_wait(self._running[0])
        self.manager = self._new_manager()
        self._running[0] = asyncio.create_task(self.manager.run())
        await self.manager.leading.wait()

    @property
    def routing(self) -> Routing:
        return self.manager._publisher.routing

    async def begin(self) -> None:
        await self.manager.leading.wait()
        plan = [pb.PlannedNode(node_id=n) for n in (1, 2, 3)]
        await self.manager.init(pb.InitRequest(storage=plan, replicas=2, targets_per_disk=2))
        for node in (1, 2, 3):
            await self.join(node)
        self._running.append(asyncio.create_task(self._beat()))

    async def join(self, node: int) -> None:
        address = f"h{node}:1"
        await self.manager.register(pb.RegisterRequest(node_id=node, kind=pb.STORAGE, address=address, incarnation=1))
        self.living.add(node)

    async def _beat(self) -> None:
        while True:
            for node in sorted(self.living):
                routing = self.routing
                reply = await self.manager.heartbeat(
                    pb.HeartbeatRequest(
                        node_id=node,
                        incarnation=1,
                        routing_version=self._told.get(node, 0),
                        targets=[self._report(t.target_id, routing) for t in routing.targets.values()
                                 if t.node_id == node and not routing.is_removed(t)],
                    )
                )  # fmt: skip
                self._told[node] = reply.routing_version
            await asyncio.sleep(0.02)

    def _report(self, target_id: Any, routing: Routing) -> pb.TargetReport:
        chain, node = routing.chains[routing.targets[target_id].chain_id], routing.targets[target_id].node_id
        leaves = chain.leaving == target_id and must_give_way(chain, routing.minimums().get(chain.chain_id, 1))
        gives_way = node in self.left or (leaves and not self.stay_on)
        filled = chain.state(target_id) is PublicState.SYNCING and node not in self.slow
        writable = filled or chain.state(target_id) is PublicState.SERVING
        state = pb.LOCAL_OFFLINE if gives_way else pb.LOCAL_UPTODATE if writable else pb.LOCAL_ONLINE
        return pb.TargetReport(
            target_id=target_id, chain_version=chain.version, local_state=state, store_id=self.store_id,
            used_bytes=self.large.get(chain.chain_id, self.used_bytes), free_bytes=self.free_bytes.get(node, 1 << 40),
            capacity_bytes=self.capacity_bytes, read_only=node in self.full,
            failure="full" if node in self.full else "",
            sync_progress=round(LOOP_CLOCK.monotonic() * 100) if self.resyncs_proceed else 0,
        )  # fmt: skip

    async def step(self) -> None:
        """Let the nodes report once, and the manager act on it."""
        await asyncio.sleep(0.02)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not reached():
                await self.step()

    def held(self) -> dict[int, int]:
        """How many chains each node has a member of."""
        found = dict.fromkeys((n for n in self.routing.nodes if n < 1000), 0)
        for chain in self.routing.chains.values():
            for member in chain.members:
                found[self.routing.targets[member.target_id].node_id] += 1
        return {int(node): count for node, count in found.items()}

    async def end(self) -> None:
        await cancel_and_wait(*self._running)


def run_moving(body: Callable[[MovingNodes], Awaitable[None]], engine: MemoryEngine | None = None) -> None:
    async def main() -> None:
        nodes = MovingNodes(engine or MemoryEngine())
        await nodes.begin()
        try:
            await body(nodes)
        finally:
            await nodes.end()

    run_virtual(main())
