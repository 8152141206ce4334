"""What neighbours in a chain have is compared."""

from pathlib import Path

import pytest
from threefs_storage.health.replica_comparison import CommittedRow, Comparison, is_divergent
from threefs_storage.peer_targets import PeerTargets

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, TestChain, chain_of, refuse
from tests.harness.clocks import SteppedClock
from threefs.ids import ChunkId
from threefs.rpc.methods import SCAN_CHUNKS
from threefs.wire import storage_pb2 as pb

OLD, NEW, OTHER = CommittedRow(1, 3, 7), CommittedRow(2, 3, 8), CommittedRow(2, 3, 9)
GONE, NOTHING = CommittedRow(3, 0, 0, removed=True), CommittedRow(0, 0, 0, removed=True)


@pytest.mark.parametrize(
    ("own", "other", "behind_it", "before_it"),
    [
        (NEW, NEW, False, False),
        (OLD, NEW, True, True),
        (NEW, OLD, False, False),  # the other one is wrong, and sees it
        (NEW, OTHER, False, True),  # the one before counts more
        (NEW, None, False, False),
        (None, NEW, False, False),
        (NEW, GONE, True, True),
        (NOTHING, GONE, False, False),
        (NOTHING, NEW, True, True),
        (GONE, NOTHING, False, False),
    ],
)
def test_the_target_that_diverges(
    own: CommittedRow | None, other: CommittedRow | None, behind_it: bool, before_it: bool
) -> None:
    assert is_divergent(own, other, by_predecessor=False) is behind_it
    assert is_divergent(own, other, by_predecessor=True) is before_it


def comparison(chain: TestChain, node: int, clock: SteppedClock | None = None) -> Comparison:
    return Comparison(
        PeerTargets(chain[node].peers, lambda: chain[node].cluster.routing), clock=clock or SteppedClock()
    )


async def test_a_chain_that_is_whole_with_removals_and_what_is_on_its_way(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        for number in range(5):
            await chain.write(b"x" * number, chunk=ChunkId(7, number))
        await chain.send(chain.row(kind=pb.REMOVE, chunk=ChunkId(7, 2)))
        chain[3].target.engine.forget(ChunkId(7, 2))  # sooner than the others
        await chain.give_up(1, chain.row(b"later"), b"later")
        for node in (1, 2, 3):
            assert await comparison(chain, node).find_divergent(chain[node].target, None, None) == []
        chain[1].peers.before = None


async def test_what_cannot_be_compared_is_not_wrong(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        chain[1].target.engine.forget(CHUNK)
        assert await comparison(chain, 1).find_divergent(chain[1].target, None, None) == [CHUNK]
        assert await comparison(chain, 1).find_divergent(chain[1].target, CHUNK, None) == [], "it is outside"
        chain[1].peers.before = refuse
        assert await comparison(chain, 1).find_divergent(chain[1].target, None, None) == []
        chain[1].peers.before = None
        chain.change((1, SERVING), (2, OFFLINE))
        assert await comparison(chain, 1).find_divergent(chain[1].target, None, None) == []


async def test_of_many_chunks_that_a_target_lacks_some_are_compared_twice(tmp_path: Path) -> None:
    """Its neighbours did nothing else for a minute, and a call that failed meanwhile put it off to the next pass."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        record = chain[2].target.engine.record(CHUNK)
        chain[2].target.engine._store.write({ChunkId(7, number): record for number in range(200)})
        chain[1].target.engine.forget(CHUNK)
        found = await comparison(chain, 1).find_divergent(chain[1].target, None, None)
        assert found[0] == CHUNK and chain[1].peers.count(SCAN_CHUNKS) < 100


async def test_a_target_that_leaves_between_two_comparisons_is_not_wrong(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        chain[1].target.engine.forget(CHUNK)
        clock = SteppedClock()

        def leave() -> None:
            chain.change((1, OFFLINE), (2, SERVING))

        clock.on_sleep = leave
        assert await comparison(chain, 1, clock).find_divergent(chain[1].target, None, None) == []
