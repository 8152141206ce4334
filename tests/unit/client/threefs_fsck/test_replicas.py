import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_fsck import replicas
from threefs_fsck.replicas import ReplicaState

from tests.harness.memory_storage import MemoryCluster, MemoryStorage
from threefs.errors import Unavailable
from threefs.ids import ChainId, ChunkId, TargetId
from threefs.routing import Chain

ids = st.builds(ChunkId, st.integers(1, 4), st.integers(0, 12))


@given(st.sets(ids), st.sets(st.tuples(st.sampled_from([101, 201, 301]), ids)))
def test_side_by_side(held: set[ChunkId], lacking: set[tuple[int, ChunkId]]) -> None:
    storage = MemoryStorage(MemoryCluster())
    for chunk in held:
        storage.data[chunk], storage.versions[chunk] = bytearray(b"abc"), 4
        storage.chain_of[chunk] = ChainId(1)
    storage.lacking = lacking
    routing = storage.cluster.routing

    async def scene() -> dict[ChunkId, replicas.ReplicaStates]:
        found: dict[ChunkId, replicas.ReplicaStates] = {}
        async for page in replicas.chunks(storage, routing, routing.chains[ChainId(1)]):
            assert not found.keys() & page.keys(), "a chunk comes once"
            found |= page
        for chunk, states in found.items():
            assert await replicas.replica_states(storage, routing, routing.chains[ChainId(1)], chunk) == states
        return found

    found = asyncio.run(scene())
    for chunk in held:
        there = {target for target in (101, 201, 301) if (target, chunk) not in lacking}
        assert {target for target, row in found.get(chunk, {}).items() if row} == there
    assert set(found) <= held


def test_what_agrees() -> None:
    a, b = ReplicaState(1, 2, 3, False), ReplicaState(2, 2, 3, False)
    on_its_way = ReplicaState(1, 2, 3, True)
    one, two = TargetId(1), TargetId(2)
    assert replicas.are_consistent({one: a, two: a})
    assert not replicas.are_consistent({one: a, two: b})
    assert not replicas.are_consistent({one: a, two: None})
    assert replicas.are_consistent({one: on_its_way, two: b})
    assert replicas.are_consistent({one: on_its_way, two: None})


def test_a_chain_without_targets() -> None:
    storage = MemoryStorage(MemoryCluster())

    async def scene() -> None:
        async for _ in replicas.chunks(storage, storage.cluster.routing, Chain(ChainId(1), 1, ())):
            raise AssertionError("there is nothing to see")

    with pytest.raises(Unavailable, match="no serving target"):
        asyncio.run(scene())
