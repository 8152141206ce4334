"""A chain controller by itself, over a store whose transactions fail one way or the other."""

import asyncio
from collections.abc import Awaitable, Callable

from threefs_manager.chains.controller import ChainController
from threefs_manager.election import Epoch
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.store.cluster_store import Store, Writer

from tests.harness.clocks import SteppedClock
from tests.harness.terms import take
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import Unavailable
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.routing import EMPTY, Chain, ChainMember, PublicState, Target
from threefs.wire import manager_pb2 as pb

SERVING = PublicState.SERVING


class Moody(MemoryEngine):
    """Fails the next transactions that change chains."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0  # they do nothing
        self.unknown = 0  # they happen, and nobody is told
        self.meanwhile: Callable[[], Awaitable[None]] | None = None  # while nobody has been told yet
        self.before: Callable[[], None] = lambda: None  # a commit that would change chains
        self.during: Callable[[], None] = lambda: None  # a commit that changes chains
        self.committed: list[int] = []  # how many chains each changed

    async def commit(self, attempt: BufferedTransaction) -> None:
        chains = sum(key.startswith(b"CHAI") for key in attempt.writes)
        if chains and self.lost:
            self.lost -= 1
            raise Unavailable("the store is away")
        if chains:
            self.before()
        await super().commit(attempt)
        if chains:
            self.during()
            self.committed.append(chains)
        if chains and self.unknown:
            self.unknown -= 1
            if self.meanwhile is not None:
                await self.meanwhile()
            raise Unavailable("no answer")


class Desk:
    """A chain controller by itself over `count` chains of two targets each: one on node 1, one on node 2."""

    def __init__(self, engine: Moody, epoch: Epoch, count: int) -> None:
        self.engine, self.count, self.clock = engine, count, SteppedClock()
        self.store, self.publisher = Store(engine, epoch), RoutingPublisher()
        self.failure_detector = FailureDetector(self.clock)
        self.changes: list[tuple[Chain, Chain]] = []
        detector = StaleStoreDetector(EMPTY, self.clock)
        detector.on_heard(1)
        self.controller = ChainController(
            self.store,
            self.publisher,
            self.failure_detector,
            detector,
            clock=self.clock,
            on_change=lambda before, after: self.changes.append((before, after)),
        )

    async def plan(self) -> None:
        targets = [
            Target(TargetId(node * 10_000 + n), NodeId(node), ChainId(n), 5)
            for n in range(1, self.count + 1)
            for node in (1, 2)
        ]
        chains = [
            Chain(ChainId(n), 1, tuple(ChainMember(TargetId(node * 10_000 + n), SERVING) for node in (1, 2)))
            for n in range(1, self.count + 1)
        ]

        async def write(writer: Writer) -> None:
            writer.cluster.lease_ms = 10_000_000  # nobody dies by silence here
            writer.put_chains(chains, targets)

        _, routing = await self.store.change(write)
        self.publisher.start_term(routing, 1)
        self.engine.committed.clear()

    def heartbeat(self, node: int, store_id: int = 5) -> int:
        """How many leases the node gets when it knows everything."""
        self.clock.advance(0.001)
        routing = self.publisher.routing
        reports = [
            pb.TargetReport(
                target_id=node * 10_000 + n,
                chain_version=routing.chains[ChainId(n)].version,
                local_state=pb.LOCAL_UPTODATE,
                store_id=store_id,
            )
            for n in range(1, self.count + 1)
        ]
        leased, changed = self.failure_detector.on_heartbeat(node, 1, reports, routing)
        self.controller.enqueue(changed)
        return len(leased)

    def served_by(self, node: int) -> int:
        chains = self.publisher.routing.chains.values()
        return sum(chain.state(TargetId(node * 10_000 + chain.chain_id)) is SERVING for chain in chains)


def at_desk(count: int, body: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Moody()
        desk = Desk(engine, await take(engine, "one"), count)
        await desk.plan()
        assert desk.heartbeat(1) == desk.heartbeat(2) == count
        running = asyncio.create_task(desk.controller.run())
        async with asyncio.timeout(20):
            await desk.controller.wait_idle(10)
            await body(desk)
        await cancel_and_wait(running)

    run_virtual(main())
