import asyncio
import dataclasses
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tests.harness.memory_storage import MemoryCluster, MemoryStorage, make_routing, without_head
from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.checksums import crc32c
from threefs.cluster.chunk_client import ChunkClient, ChunkLimits
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import (
    ChainChanged,
    ChunkChanged,
    ChunkLost,
    ConnectionLost,
    DeadlineExceeded,
    NoSpace,
    NotServing,
    OutcomeUnknown,
    ResultDropped,
    ResultForgotten,
    ThreefsError,
    TooFewReplicas,
    Unavailable,
)
from threefs.ids import ChainId, ChunkId, ClientId, InodeId, TableId
from threefs.layout import FileLayout
from threefs.routing import PublicState
from threefs.wire import storage_pb2 as pb

T = TypeVar("T")
KIB = 1 << 10
LAYOUT = FileLayout(64 * KIB, TableId(1), stripe=2)
INODE = InodeId(77)


class Setting:
    def __init__(self, **limits: Any) -> None:
        self.cluster = MemoryCluster()
        self.storage = MemoryStorage(self.cluster)
        quick = {"first_pause_s": 0.001, "longest_pause_s": 0.002, **limits}
        self.chunks = ChunkClient(
            self.storage, self.cluster, ClientId(b"c" * 16), clock=LOOP_CLOCK, limits=ChunkLimits(**quick)
        )

    def writes(self) -> list[pb.WriteRequest]:
        return [request for _, name, request in self.storage.calls if isinstance(request, pb.WriteRequest)]


def go(work: Coroutine[Any, Any, T]) -> T:
    return run_virtual(work)


def failing(*errors: ThreefsError | None) -> list[Any]:
    return [lambda *_, error=error: error for error in errors]


def test_a_write_goes_to_the_head_of_its_chain() -> None:
    s = Setting()
    applied = go(s.chunks.write(LAYOUT, INODE, 1, 10, b"hello", timeout_s=5))
    assert (applied.version, applied.length) == (1, 15)
    assert s.storage.data[ChunkId(INODE, 1)] == bytes(10) + b"hello"
    routing = s.cluster.routing
    chain = routing.chains[s.chunks.chain_of(LAYOUT, 1)]
    assert chain.head is not None
    assert s.storage.calls[0][0] == routing.address_of(chain.head)


def test_a_lost_answer_is_asked_for_again_under_the_same_identity() -> None:
    s = Setting()
    s.storage.after = failing(ConnectionLost(), DeadlineExceeded(), None)
    go(s.chunks.write(LAYOUT, INODE, 0, 0, b"once", timeout_s=5))
    assert s.storage.applied == 1
    assert len(s.writes()) == 3
    assert len({request.writes[0].identity.seq for request in s.writes()}) == 1
    assert [request.writes[0].again for request in s.writes()] == [False, True, True], "it may be a repeat"


def test_a_large_write_passes_a_slow_link() -> None:
    """It was sent again and again, each time for as long as one without bytes may take."""
    s = Setting(attempt_timeout_s=0.001)
    s.storage.bytes_per_s = 1.5 * (1 << 20)
    go(s.chunks.write(LAYOUT, INODE, 0, 0, bytes(64 * KIB), timeout_s=5))
    assert len(s.writes()) == 1


def test_a_write_that_does_not_pass_ends_at_its_deadline() -> None:
    s = Setting(attempt_timeout_s=0.001)
    s.storage.bytes_per_s = 1.0
    with pytest.raises(OutcomeUnknown):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, bytes(64 * KIB), timeout_s=0.05))
    assert len(s.writes()) == 1


def test_two_writes_have_two_identities() -> None:
    s = Setting()

    async def work() -> None:
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"a", timeout_s=5)
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"b", timeout_s=5)

    go(work())
    assert s.storage.applied == 2
    assert s.storage.data[ChunkId(INODE, 0)] == b"b"


def near(s: Setting, *, fence: int = 0) -> list[ChunkUpdate]:
    """Three writes near each other, and one of another chunk."""
    rows = [(0, 0, b"first"), (0, 10, b"second"), (0, 20, b"third"), (1, 3, b"fourth")]
    return [
        ChunkUpdate(
            s.chunks.chain_of(LAYOUT, n), ChunkId(INODE, n), pb.WRITE, 64 * KIB, at, len(data), data, fence=fence
        )
        for n, at, data in rows
    ]


def test_writes_near_each_other_are_one_change() -> None:
    s = Setting()
    s.storage.after = failing(ConnectionLost(), None)
    applied = go(s.chunks.apply(near(s, fence=4), timeout_s=5))
    assert s.storage.data[ChunkId(INODE, 0)] == b"first\0\0\0\0\0second\0\0\0\0third"
    assert s.storage.applied == 2 and [(one.version, one.length) for one in applied] == [(1, 25)] * 3 + [(1, 9)]
    sent = [write for request in s.writes() for write in request.writes]
    assert {(write.kind, tuple(write.pieces)) for write in sent} == {
        (pb.WRITE_PIECES, (0, 5, 10, 6, 20, 5)),
        (pb.WRITE, ()),
    }
    assert {write.fence for write in sent} == {4} and len({write.identity.seq for write in sent}) == 2


def test_an_error_of_a_joined_change_is_that_of_each_of_its_writes() -> None:
    s = Setting()
    updates = near(s)[:3]
    s.storage.before = failing(NoSpace())
    outcomes = go(s.chunks.apply_each(updates, timeout_s=5))
    assert [type(outcome) for outcome in outcomes] == [NoSpace] * 3


def test_members_of_an_older_release_get_each_write_by_itself() -> None:
    """Also where only another member is old: it may become the head before the change has ended."""
    s = Setting()
    routing = s.cluster.routing
    chain = routing.chains[s.chunks.chain_of(LAYOUT, 0)]
    last = routing.address_of(chain.members[-1].target_id)
    s.storage.has_feature = lambda address, feature: address != last  # type: ignore[method-assign]
    go(s.chunks.apply(near(s)[:3], timeout_s=5))
    assert s.storage.applied == 3
    assert {write.kind for request in s.writes() for write in request.writes} == {pb.WRITE}


def test_after_a_lost_answer_the_deadline_leaves_the_outcome_open() -> None:
    s = Setting()
    s.storage.after = failing(*[ConnectionLost()] * 10_000)
    with pytest.raises(OutcomeUnknown, match="chunk 3 of inode 77"):
        go(s.chunks.write(LAYOUT, INODE, 3, 0, b"x", timeout_s=0.05))


def test_a_write_without_an_answer_says_that_its_chain_lacks_replicas() -> None:
    """As the chain has said before, or else as the routing says by the deadline."""
    s = Setting()
    refused = TooFewReplicas("the disk of node 2 is full")
    s.storage.before = failing(ConnectionLost(), refused, *[DeadlineExceeded("no answer")] * 10_000)
    with pytest.raises(OutcomeUnknown, match=r"last error: no answer; the disk of node 2 is full"):
        go(s.chunks.write(LAYOUT, INODE, 3, 0, b"x", timeout_s=0.5))
    routing = s.cluster.routing
    s.storage.before = failing(*[DeadlineExceeded("no answer")] * 10_000)
    with pytest.raises(OutcomeUnknown, match=r"last error: no answer$"):
        go(s.chunks.write(LAYOUT, INODE, 3, 0, b"x", timeout_s=0.5))
    s.cluster.routing = dataclasses.replace(routing, min_replicas={TableId(1): 4})
    with pytest.raises(OutcomeUnknown, match=r"no answer; chain 2 on nodes 2, 3, 1 has 3 of 3 copies, and at least 4"):
        go(s.chunks.write(LAYOUT, INODE, 3, 0, b"x", timeout_s=0.5))


def test_a_write_that_never_reached_anyone_did_not_happen() -> None:
    s = Setting()
    s.storage.down = {"storage-1:1", "storage-2:1", "storage-3:1"}
    with pytest.raises(Unavailable):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=0.05))


def test_a_refusal_is_final_unless_an_earlier_attempt_is_open() -> None:
    s = Setting()
    s.storage.before = failing(NoSpace())
    with pytest.raises(NoSpace):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=5))
    s.storage.before = failing(ConnectionLost(), NoSpace())
    with pytest.raises(OutcomeUnknown):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=5))


def test_bytes_are_lost_for_good_when_all_members_of_the_chain_say_so() -> None:
    """A member that is out for a moment may have them. Its chain goes on without it, and without what only it has."""
    s = Setting()
    whole = s.cluster.routing
    chain = whole.chains[s.chunks.chain_of(LAYOUT, 0)]
    first, *others = chain.members
    away = tuple(dataclasses.replace(each, state=PublicState.OFFLINE) for each in others)
    alone = dataclasses.replace(chain, members=(first, *away))
    s.cluster.routing = dataclasses.replace(whole, chains={**whole.chains, chain.chain_id: alone})
    s.storage.before = failing(ChunkLost(), ChunkLost())
    go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=5))
    s.storage.before = failing(*[ChunkLost()] * 10_000)
    with pytest.raises(ChunkLost):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=0.05))
    s.cluster.routing = whole
    s.storage.before = failing(ChunkLost())
    with pytest.raises(ChunkLost):
        go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=5))


def test_a_change_for_one_version_is_refused_by_another() -> None:
    s = Setting()

    async def work() -> None:
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"a", timeout_s=5)
        await s.chunks.write(LAYOUT, INODE, 1, 0, b"a", timeout_s=5)
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"b", timeout_s=5)
        rows = [(chain, row) async for chain, page in s.chunks.listing(LAYOUT, INODE, timeout_s=5) for row in page]
        assert sorted(row.version for _, row in rows) == [1, 2]
        removals = [
            ChunkUpdate(chain, ChunkId(INODE, row.number), pb.REMOVE, LAYOUT.chunk_bytes, only_version=1)
            for chain, row in rows
        ]
        s.storage.after = failing(ConnectionLost(), ConnectionLost())
        with pytest.raises(ChunkChanged):  # not: outcome unknown
            await s.chunks.apply(removals, timeout_s=5)

    go(work())
    assert s.storage.data == {ChunkId(INODE, 0): b"b"}, "the other one was removed"


def test_a_changed_chain_is_looked_up_again() -> None:
    s = Setting()
    old = s.cluster.routing
    s.cluster.routing = make_routing(version=2, chain_version=2)
    served, s.cluster.routing = s.cluster.routing, old
    s.cluster.upcoming = [served]
    s.storage.before = failing(ChainChanged())
    go(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=5))
    assert s.cluster.refreshes == 1
    assert [request.writes[0].chain_version for request in s.writes()] == [1, 2]


def test_rows_fail_and_succeed_on_their_own() -> None:
    s = Setting()
    routing = s.cluster.routing
    stale = s.chunks.chain_of(LAYOUT, 0)
    chains = {**routing.chains, stale: dataclasses.replace(routing.chains[stale], version=9)}
    newer = dataclasses.replace(routing, version=2, chains=chains)
    s.cluster.upcoming = [newer]
    real = s.storage._check

    def check(target: int, chain_version: int, **kinds: bool) -> Any:
        if routing.targets[target].chain_id == stale and chain_version != 9:  # type: ignore[index]
            raise ChainChanged
        return real(target, chain_version, **kinds)

    s.storage._check = check  # type: ignore[method-assign]
    updates = [
        ChunkUpdate(s.chunks.chain_of(LAYOUT, n), ChunkId(INODE, n), pb.WRITE, 64 * KIB, 0, 4, b"abcd")
        for n in range(4)
    ]
    applied = go(s.chunks.apply(updates, timeout_s=5))
    assert [a.length for a in applied] == [4] * 4
    assert s.storage.applied == 4


def test_a_batch_is_one_request_per_head_up_to_the_limits() -> None:
    s = Setting()
    updates = [
        ChunkUpdate(s.chunks.chain_of(LAYOUT, n), ChunkId(INODE, n), pb.WRITE, 64 * KIB, 0, 1, b"x") for n in range(10)
    ]
    go(s.chunks.apply(updates, timeout_s=5))
    assert len(s.writes()) == 2
    small = Setting(request_bytes=2, request_rows=100)
    go(small.chunks.apply(updates, timeout_s=5))
    assert sorted(len(request.writes) for request in small.writes()) == [1, 1, 2, 2, 2, 2]


def test_changes_of_one_chunk_keep_their_order() -> None:
    s = Setting()
    chain = s.chunks.chain_of(LAYOUT, 0)
    updates = [
        ChunkUpdate(chain, ChunkId(INODE, 0), pb.WRITE, 64 * KIB, 0, 1, bytes([65 + number])) for number in range(5)
    ]
    applied = go(s.chunks.apply(updates, timeout_s=5))
    assert [a.version for a in applied] == [1, 2, 3, 4, 5]
    assert s.storage.data[ChunkId(INODE, 0)] == b"E"


def test_concurrent_writers_of_one_chunk_wait_for_each_other() -> None:
    s = Setting()

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(s.chunks.write(LAYOUT, INODE, 0, number, bytes([number]), timeout_s=5))

    go(work())
    assert s.storage.data[ChunkId(INODE, 0)] == bytes(range(20))
    assert s.storage.applied == 20


def test_waiting_for_another_write_ends_with_the_deadline() -> None:
    s = Setting()

    async def work() -> None:
        s.chunks._lock_chunks([_row(s)])
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=0.02)

    with pytest.raises(DeadlineExceeded):
        go(work())


def _row(s: Setting) -> Any:
    from threefs.cluster.chunk_client import _Row

    return _Row(ChunkUpdate(s.chunks.chain_of(LAYOUT, 0), ChunkId(INODE, 0), pb.WRITE, 64 * KIB))


def test_a_cancelled_write_frees_its_chunk() -> None:
    s = Setting()

    async def work() -> None:
        s.storage.down = {"storage-1:1", "storage-2:1", "storage-3:1"}
        task = asyncio.create_task(s.chunks.write(LAYOUT, INODE, 0, 0, b"x", timeout_s=60))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        s.storage.down = set()
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"y", timeout_s=5)

    go(work())
    assert s.storage.data[ChunkId(INODE, 0)] == b"y"


def test_length_and_listing_of_a_whole_file() -> None:
    s = Setting()

    async def work() -> None:
        assert await s.chunks.file_length(LAYOUT, INODE, timeout_s=5) == 0
        for number in range(11):
            await s.chunks.write(LAYOUT, INODE, number, 0, b"abc", timeout_s=5)
        await s.chunks.write(LAYOUT, InodeId(78), 0, 0, b"other", timeout_s=5)
        assert await s.chunks.last_chunk(LAYOUT, INODE, timeout_s=5) == (10, 3)
        assert await s.chunks.file_length(LAYOUT, INODE, timeout_s=5) == 10 * 64 * KIB + 3
        pages = [page async for page in s.chunks.listing(LAYOUT, INODE, 4, timeout_s=5)]
        crc = crc32c(b"abc")
        assert sorted(row for _, page in pages for row in page) == [(number, 3, 1, crc) for number in range(4, 11)]

    go(work())


def test_pages_of_all_chains_come_in_one_order() -> None:
    """Each chain shows three chunks at a time: behind the end of the shorter page something may be missing."""
    s = Setting()
    there = [0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 21]

    async def work() -> None:
        for number in there:
            await s.chunks.write(LAYOUT, INODE, number, 0, b"abc", timeout_s=5)
        found, first, pages = [], 1, 0
        while True:
            page, following = await s.chunks.page(LAYOUT, INODE, first, timeout_s=5)
            found += page
            pages += 1
            if not following:
                break
            assert page
            assert following > first
            first = following
        assert found == [(number, 3) for number in there[1:]]
        assert pages > 2

    go(work())


def test_a_length_that_cannot_be_asked_for_is_a_plain_error() -> None:
    s = Setting()
    s.storage.down = {"storage-1:1", "storage-2:1", "storage-3:1"}
    with pytest.raises(Unavailable):
        go(s.chunks.file_length(LAYOUT, INODE, timeout_s=0.02))
    with pytest.raises(Unavailable):
        go(s.chunks.page(LAYOUT, INODE, timeout_s=0.02))


def test_extend_and_remove_of_one_chunk() -> None:
    s = Setting()

    async def work() -> None:
        await s.chunks.extend(LAYOUT, INODE, 0, 100, timeout_s=5)
        assert (await s.chunks.extend(LAYOUT, INODE, 0, 50, timeout_s=5)).length == 100
        await s.chunks.remove(LAYOUT, INODE, 0, timeout_s=5)
        assert await s.chunks.last_chunk(LAYOUT, INODE, timeout_s=5) is None

    go(work())


def test_a_change_that_is_refused_because_results_are_forgotten_is_made_anew_and_names_its_first_number() -> None:
    s = Setting()
    write = s.storage._write
    refusals = [pb.ChunkWriteResult(code=ResultForgotten.code, version=41)]

    def refuse_once(request: pb.WriteRequest, payload: bytes) -> pb.WriteReply:
        return pb.WriteReply(results=[refusals.pop()]) if refusals else write(request, payload)

    s.storage._write = refuse_once  # type: ignore[method-assign]
    assert go(s.chunks.write(LAYOUT, INODE, 1, 0, b"hello", timeout_s=5)).version == 1
    first, second = (request.writes[0] for request in s.writes())
    assert (first.known_version, first.first_seq) == (0, 0)
    assert (second.known_version, second.first_seq, second.again) == (41, first.identity.seq, False)
    assert second.identity.seq > first.identity.seq


def test_a_change_whose_result_was_dropped_is_not_repeated() -> None:
    s = Setting()
    refusal = pb.ChunkWriteResult(code=ResultDropped.code, message="the result may have been dropped")
    s.storage._write = lambda request, payload: pb.WriteReply(results=[refusal])  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown, match="may or may not have been applied; last error: the result may have been"):
        go(s.chunks.write(LAYOUT, INODE, 1, 0, b"hello", timeout_s=5))
    assert len(s.writes()) == 1


def test_a_change_names_the_newest_version_of_its_chunk_that_was_seen() -> None:
    s = Setting()
    for _ in range(3):
        go(s.chunks.write(LAYOUT, INODE, 1, 0, b"hello", timeout_s=5))
    assert [request.writes[0].known_version for request in s.writes()] == [0, 1, 2]


def test_a_table_that_is_newer_than_the_routing_is_waited_for() -> None:
    s = Setting()
    newer = dataclasses.replace(make_routing(version=2), tables={TableId(1): (), TableId(5): (ChainId(2),)})
    layout = FileLayout(64 * KIB, TableId(5), stripe=1)
    with pytest.raises(NotServing, match="chain table 5 is not in the routing after 0 s"):
        go(s.chunks.last_chunk(layout, INODE, timeout_s=0))
    s.cluster.upcoming = [newer]
    assert go(s.chunks.last_chunk(layout, INODE, timeout_s=5)) is None
    assert s.cluster.routing is newer


def test_an_attempt_at_a_silent_head_ends_when_its_chain_goes_on_without_it() -> None:
    s = Setting()
    chain = s.chunks.chain_of(LAYOUT, 0)
    head, after = without_head(s.cluster.routing, chain)
    s.storage.silent.add(s.cluster.routing.address_of(head))

    async def work() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        loop.call_later(2, s.cluster.learn, after)
        await s.chunks.write(LAYOUT, INODE, 0, 0, b"once", timeout_s=30)
        return loop.time() - began

    assert 2 <= go(work()) < 3
    first, second = (request.writes[0] for request in s.writes())
    assert first.identity == second.identity and second.again, "the silent head may have passed it on"
    assert first.target == head != second.target
