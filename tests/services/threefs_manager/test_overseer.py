"""Chains change when their targets die, return and catch up."""

import asyncio
from collections.abc import Awaitable, Callable

from threefs_manager.election import Election
from threefs_manager.service import Manager

from tests.support.chain import until
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
        self.complete: set[int] = set()  # nodes whose target says that nothing is missing

    def chain(self) -> Chain:
        (chain,) = self.manager._publication.routing.chains.values()
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
                    store_id=5,
                )
                await self.manager.heartbeat(
                    pb.HeartbeatRequest(node_id=node, incarnation=incarnation, targets=[report])
                )
            await asyncio.sleep(0.02)


def run(body: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = MemoryEngine()
        manager = Manager(engine, Election(engine, "one", length_s=0.1, alone=True), lease_s=0.3)
        running = asyncio.create_task(manager.run())
        await manager.began.wait()
        await manager.init(PLAN)
        bench = Bench(manager)
        for node in (1, 2, 3):
            await bench.register(node, 1)
        beating = asyncio.create_task(bench.beat())
        async with asyncio.timeout(20):
            await body(bench)
        for task in (beating, running):
            task.cancel()
        await asyncio.gather(beating, running, return_exceptions=True)

    asyncio.run(main())


SERVING, SYNCING, LASTSRV, OFFLINE = (
    PublicState.SERVING,
    PublicState.SYNCING,
    PublicState.LASTSRV,
    PublicState.OFFLINE,
)


async def check_silence(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    del bench.living[2]
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: OFFLINE})
    bench.living[2] = 1
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SYNCING})
    bench.complete.add(2)
    await until(lambda: bench.states() == {1: SERVING, 3: SERVING, 2: SERVING})


def test_a_silent_target_leaves_and_comes_back_by_resync() -> None:
    run(check_silence)


async def check_restart(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    await bench.register(1, 2)
    assert bench.states()[1] in (OFFLINE, SYNCING), "R8: the registration of a new incarnation waits for this"


def test_a_restart_takes_the_old_incarnation_out_at_once() -> None:
    run(check_restart)


async def check_all_die(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    await bench.register(3, 2)
    await until(lambda: bench.states() == {1: OFFLINE, 2: OFFLINE, 3: SERVING})
    await bench.register(1, 2)
    await until(lambda: bench.states() == {1: SYNCING, 2: OFFLINE, 3: SERVING})


def test_when_all_die_the_first_to_return_serves_alone() -> None:
    run(check_all_die)


async def check_wiped(bench: Bench) -> None:
    await asyncio.sleep(0.1)
    bench.living.clear()
    await until(lambda: set(bench.states().values()) == {LASTSRV})
    await bench.register(3, 2, store_id=6)
    bench.living[3] = 2
    await asyncio.sleep(0.2)
    # The heartbeats of this bench name store 5, so only the registration tells of the wipe.
    routing = bench.manager._publication.routing
    assert {target.store_id for target in routing.targets.values()} == {5}, "what it must have is remembered"


def test_a_wiped_survivor_is_not_taken_for_one_that_has_its_data() -> None:
    run(check_wiped)
