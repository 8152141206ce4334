"""What `Init` stores. How managers answer it: test_service.py."""

import pytest
from threefs_manager import new_cluster
from threefs_manager.routing_publisher import RoutingPublisher
from threefs_manager.store.cluster_store import Store

from tests.harness.seeded_random import SeededRandom
from tests.harness.terms import take
from threefs.errors import AlreadyExists
from threefs.kv.memory import MemoryEngine
from threefs.wire import manager_pb2 as pb

PLAN = pb.InitRequest(storage=[pb.PlannedNode(node_id=n) for n in (1, 2, 3)], replicas=3, targets_per_disk=2)


async def test_a_cluster_is_made_once_with_one_table() -> None:
    engine = MemoryEngine()
    store, publisher = Store(engine, await take(engine, "one")), RoutingPublisher()
    publisher.start_term(await store.load(), 1)

    async def init(request: pb.InitRequest) -> str:
        return await new_cluster.init(store, publisher, SeededRandom(1), 9000, request)

    made = await init(PLAN)
    routing = await store.load()
    assert publisher.routing == routing and routing.cluster_id == made
    assert (routing.tables, routing.replicas, routing.min_replicas) == ({1: (1, 2)}, {1: 3}, {1: 2})
    assert (routing.lease_ms, routing.default_table) == (9000, 1)
    assert await init(PLAN) == made and publisher.routing.version == routing.version
    with pytest.raises(AlreadyExists, match="another plan"):
        await init(pb.InitRequest(storage=PLAN.storage, replicas=1, targets_per_disk=2))
