"""A manager with three storage nodes that send heartbeats, on a loop whose time is virtual."""

import asyncio
from collections.abc import Awaitable, Callable

from threefs_manager.election import Election
from threefs_manager.service import Manager

from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.routing import Chain, PublicState
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(
    storage=[pb.PlannedNode(node_id=n, domain=str(n)) for n in (1, 2, 3)], replicas=3, targets_per_disk=1, lease_ms=300
)


class Bench:
    """A manager, and nodes that beat as long as they are in `living`."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.living: dict[int, int] = {}  # node -> incarnation
        self.store_id = 5  # of all targets but these
        self.store_ids: dict[int, int] = {}  # by node
        self.generations: dict[int, int] = {}  # how far their stores are
        self.complete: set[int] = set()  # nodes whose target says that nothing is missing
        self.unreachable: dict[int, pb.UnreachablePeer] = {}  # by node, what it cannot reach

    def chain(self) -> Chain:
        (chain,) = self.manager._publisher.routing.chains.values()
        return chain

    def states(self) -> dict[int, PublicState]:
        return {member.target_id // 100: member.state for member in self.chain().members}

    async def register(self, node: int, incarnation: int, store_id: int = 5) -> None:
        stores = [pb.Store(target_id=node * 100 + 1, store_id=store_id)]
        self.living.pop(node, None)
        request = pb.RegisterRequest(
            node_id=node, kind=pb.STORAGE, address=f"h{node}:1", incarnation=incarnation, stores=stores
        )
        while True:
            try:
                await self.manager.register(request)
                break
            except Unavailable:
                await asyncio.sleep(0.01)  # its old incarnation is still in the chain
        self.living[node] = incarnation

    async def beat(self) -> None:
        while True:
            for node, incarnation in list(self.living.items()):
                chain = self.chain()
                serving = chain.state(node * 100 + 1) is PublicState.SERVING  # type: ignore[arg-type]
                report = pb.TargetReport(
                    target_id=node * 100 + 1,
                    chain_version=chain.version,
                    local_state=pb.LOCAL_UPTODATE if serving or node in self.complete else pb.LOCAL_ONLINE,
                    store_id=self.store_ids.get(node, self.store_id),
                    generation=self.generations.get(node, 0),
                )
                unreachable = [self.unreachable[node]] if node in self.unreachable else []
                await self.manager.heartbeat(
                    pb.HeartbeatRequest(
                        node_id=node, incarnation=incarnation, targets=[report], unreachable=unreachable
                    )
                )
            await asyncio.sleep(0.02)


def run(body: Callable[[Bench], Awaitable[None]], engine: MemoryEngine | None = None) -> None:
    engine = engine or MemoryEngine()

    async def main() -> None:
        manager = Manager(
            engine,
            Election(engine, "one", length_s=0.1, exclusive=True, clock=LOOP_CLOCK),
            lease_s=0.3,
            clock=LOOP_CLOCK,
        )
        running = asyncio.create_task(manager.run())
        await manager.leading.wait()
        await manager.init(PLAN)
        bench = Bench(manager)
        for node in (1, 2, 3):
            await bench.register(node, 1)
        beating = asyncio.create_task(bench.beat())
        async with asyncio.timeout(20):
            await body(bench)
        await cancel_and_wait(beating, running)

    run_virtual(main())
