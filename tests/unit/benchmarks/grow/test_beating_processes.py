"""The load follows its chains as a storage process does, so it gets back the leases that it has lost."""

import asyncio

from benchmarks.grow.beating_processes import BeatingProcess, Counts
from benchmarks.grow.manager_store import INCARNATION, STORE_ID
from tests.harness.solo_manager import SoloManager
from threefs.ids import ChainId, NodeId
from threefs.routing import Chain, PublicState
from threefs.wire import manager_pb2 as pb

T = 2.0  # of the cluster of a SoloManager


def chain_of(solo: SoloManager) -> Chain:
    return solo.manager._publisher.routing.chains[ChainId(1)]


async def until_serving(solo: SoloManager, *, serving: bool) -> None:
    while (chain_of(solo).members[0].state is PublicState.SERVING) is not serving:
        await asyncio.sleep(0.02)


async def test_a_process_that_was_silent_for_t_gets_its_leases_back() -> None:
    async with SoloManager() as solo:
        solo.manager.bind_presence(solo.server)
        routing = solo.manager._publisher.routing
        target = chain_of(solo).head
        assert target is not None
        registration = pb.RegisterRequest(
            node_id=1, kind=pb.STORAGE, address="127.0.0.1:9", incarnation=INCARNATION, cluster_id=routing.cluster_id
        )
        registration.stores.add(target_id=target, store_id=STORE_ID)
        await solo.manager.register(registration)
        await until_serving(solo, serving=False)
        counts = Counts()
        process = BeatingProcess(solo.address, routing.cluster_id, NodeId(1), [target], T, counts)
        try:
            await process.connect()
            process.start(0.0)
            process.follow_routing(asyncio.Semaphore(1))
            await until_serving(solo, serving=True)
            while not process.is_settled:
                await asyncio.sleep(0.02)
        finally:
            await process.stop()
        assert counts.routings == 1 and counts.changes, "it is told what has changed since the snapshot"
        assert not counts.failures
