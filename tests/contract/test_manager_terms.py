"""Managers that share one store: one of them is primary, and another one goes on where it ended."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from threefs_manager.election import TERM_KEY, Election, read_lease
from threefs_manager.service import Manager

from tests.harness.clocks import SteppedClock
from tests.harness.manager_bench import Bench
from tests.harness.seeded_random import SeededRandom
from tests.harness.silent_engine import SilentEngine
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import NotPrimary, Unavailable
from threefs.kv.memory import MemoryEngine
from threefs.kv.transaction import BufferedTransaction
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(
    storage=[pb.PlannedNode(node_id=n, domain=f"d{n}") for n in (1, 2, 3)], replicas=3, targets_per_disk=2
)


def storage(node_id: int) -> pb.RegisterRequest:
    return pb.RegisterRequest(node_id=node_id, kind=pb.STORAGE, address=f"h:{node_id}", incarnation=7)


async def version_of(manager: Manager) -> int:
    return (await manager.get_status(pb.GetStatusRequest())).routing_version


class Pair:
    """Two managers that share a store, as two machines would."""

    def __init__(self, engine: MemoryEngine) -> None:
        self.managers = [
            Manager(
                engine,
                Election(engine, f"manager-{n}", length_s=0.1, clock=LOOP_CLOCK, random=SeededRandom(n)),
                lease_s=10.0,
                clock=LOOP_CLOCK,
            )
            for n in range(2)
        ]
        self._running = [asyncio.create_task(manager.run()) for manager in self.managers]

    async def primary(self, *, other_than: Manager | None = None) -> Manager:
        while True:
            for manager in self.managers:
                if manager.leading.is_set() and manager is not other_than:
                    return manager
            await asyncio.sleep(0.005)

    def other(self, manager: Manager) -> Manager:
        return self.managers[1 - self.managers.index(manager)]

    def kill(self, manager: Manager) -> None:
        """It says nothing any more, least of all that it goes."""
        self._running[self.managers.index(manager)].cancel()

    async def stop(self) -> None:
        await cancel_and_wait(*self._running)


def run_pair(body: Callable[[Pair, Manager], Awaitable[None]]) -> None:
    async def main() -> None:
        pair = Pair(MemoryEngine())
        async with asyncio.timeout(20):
            first = await pair.primary()
            await first.init(PLAN)
            await body(pair, first)
        await pair.stop()

    run_virtual(main())


async def check_standby(pair: Pair, first: Manager) -> None:
    standby = pair.other(first)
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
    calls: list[Awaitable[object]] = [
        standby.init(PLAN),
        standby.register(storage(1)),
        standby.heartbeat(beat),
        standby.get_routing(pb.GetRoutingRequest()),
        standby.get_status(pb.GetStatusRequest()),
    ]
    for call in calls:
        with pytest.raises(NotPrimary):
            await call
    assert await version_of(first) == 1


def test_a_standby_answers_nothing_but_that_it_is_not_the_primary() -> None:
    run_pair(check_standby)


async def check_takeover(pair: Pair, first: Manager) -> None:
    versions = [(await first.register(storage(n))).routing.version for n in (1, 2)]
    waiting = asyncio.create_task(first.get_routing(pb.GetRoutingRequest(known_version=versions[-1], wait_ms=60_000)))
    await asyncio.sleep(0)
    pair.kill(first)
    with pytest.raises(NotPrimary):
        await waiting
    second = await pair.primary(other_than=first)
    versions.append(await version_of(second))
    assert (await second.get_status(pb.GetStatusRequest())).manager_epoch == 2
    assert not (await second.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7))).routing_version
    await second.heartbeat(pb.HeartbeatRequest(node_id=2, incarnation=7))
    versions.append((await second.register(storage(3))).routing.version)
    assert versions == [2, 3, 3, 4], "nothing is lost and no version is used twice"
    with pytest.raises(NotPrimary):
        await first.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7))
    reply = await second.heartbeat(pb.HeartbeatRequest(node_id=1, incarnation=7))
    assert reply.routing_version == 4, "the nodes need not register again, and know by now that all are heard"


def test_another_manager_goes_on_where_the_dead_one_ended() -> None:
    run_pair(check_takeover)


async def check_resign(pair: Pair, first: Manager) -> None:
    waiting = asyncio.create_task(first.get_routing(pb.GetRoutingRequest(known_version=1, wait_ms=60_000)))
    await asyncio.sleep(0)
    leaving = asyncio.create_task(first.resign())
    with pytest.raises(NotPrimary):
        await waiting
    await leaving
    pair.kill(first)
    assert await version_of(await pair.primary(other_than=first)) == 1


def test_a_manager_that_leaves_ends_the_polls_and_lets_another_one_begin() -> None:
    run_pair(check_resign)


def test_a_manager_that_leaves_does_not_begin_again_while_it_waits_for_the_store() -> None:
    """It learned of its own resignation from the lease, took that at once, and left it to run out."""
    engine = SilentEngine()

    async def main() -> None:
        election = Election(engine, "one", length_s=0.1, exclusive=True, clock=LOOP_CLOCK)
        manager = Manager(engine, election, lease_s=0.5, clock=LOOP_CLOCK)
        running = asyncio.create_task(manager.run())
        await manager.leading.wait()
        engine.silent_about, engine.after_silence = TERM_KEY, partial(asyncio.sleep, 1.0)
        await manager.resign()
        await cancel_and_wait(running)
        lease = await read_lease(engine.begin())
        assert lease is not None and (lease.holder, lease.epoch) == ("", 1)

    run_virtual(main())


async def test_r10_no_heartbeat_is_acknowledged_while_the_own_lease_may_be_running_out() -> None:
    class Cut(MemoryEngine):
        cut = False

        async def commit(self, attempt: BufferedTransaction) -> None:
            if self.cut:
                raise Unavailable("the store is away")
            await super().commit(attempt)

    engine, clock = Cut(), SteppedClock(sleepers_wait=True)
    election = Election(engine, "one", length_s=1.0, clock=clock, random=SeededRandom(1))
    manager = Manager(engine, election, lease_s=10.0, clock=clock, random=SeededRandom(1))
    running = asyncio.create_task(manager.run())
    await manager.leading.wait()
    await manager.init(PLAN)
    await manager.register(storage(1))
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
    beat.targets.add(target_id=101, chain_version=1, local_state=pb.LOCAL_UPTODATE)
    assert list((await manager.heartbeat(beat)).leased) == [101]
    engine.cut = True
    clock.advance(0.51)
    with pytest.raises(NotPrimary, match="not been renewed in time"):
        await manager.heartbeat(beat)
    assert (await manager.get_routing(pb.GetRoutingRequest())).routing.version == 2, "that can do no harm yet"
    clock.advance(0.5)
    with pytest.raises(NotPrimary):
        await manager.get_routing(pb.GetRoutingRequest())
    await cancel_and_wait(running)


async def test_a_new_primary_renews_a_lapsed_lease_after_it_has_heard_those_that_would_know_of_a_newer_store() -> None:
    bench = Bench(is_suspended=True)
    manager = await bench.start()
    await manager.init(PLAN)
    for node in (1, 2, 3):
        await manager.register(storage(node))
    await bench.stop()
    manager = await bench.start()
    beat = pb.HeartbeatRequest(node_id=1, incarnation=7)
    report = beat.targets.add(target_id=101, chain_version=1, local_state=pb.LOCAL_UPTODATE)
    assert list((await manager.heartbeat(beat)).leased) == [101], "its last lease is young"
    report.lease_lapsed = True
    assert not (await manager.heartbeat(beat)).leased
    bench.clock.advance(10.1)  # what a manager that was suspended does first is to answer what is in its sockets
    reply = await manager.heartbeat(beat)
    assert not reply.leased and not reply.routing_version, "it could hear nobody in that time"
    for node in (2, 3):
        await manager.heartbeat(pb.HeartbeatRequest(node_id=node, incarnation=7))
    assert list((await manager.heartbeat(beat)).leased) == [101]
    await bench.stop()
