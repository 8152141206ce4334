"""Changes that come ahead of their forward (P1 to P13)."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    chain_of,
    target_of,
    until,
)
from threefs.errors import (
    ChainChanged,
    ChecksumMismatch,
    InvalidArgument,
    NotServing,
    NotStaged,
    OutcomeUnknown,
    Overloaded,
    ThreefsError,
    VersionGap,
)
from threefs.ids import NodeId
from threefs.rpc.methods import FORWARD_STAGED, FORWARD_VERSIONS, STAGE_AHEAD, WRITE
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb

_KINDS = {"blocks": OverlayLimits(deferred_bytes=0), "overlays": OverlayLimits()}


def forward(chain: TestChain, node: int, row: pb.ChunkWrite, **more: Any) -> pb.ForwardStagedRequest:
    pending = chain[node].record().pending
    content: dict[str, Any] = {"length": pending.length, "checksum": pending.checksum} if pending is not None else {}
    fields: dict[str, Any] = content | {"version": row.version, "identity": row.identity, "stamp": row.stamp} | more
    return pb.ForwardStagedRequest(target=target_of(node), chain_version=chain.version, chunk=row.chunk, **fields)


async def send_forward(chain: TestChain, request: pb.ForwardStagedRequest) -> pb.ChunkWriteResult:
    return await chain.peers.call(chain[request.target // 100].address, FORWARD_STAGED, request, timeout_s=20)


@pytest.mark.parametrize("kind", _KINDS)
async def test_all_replicas_persist_at_the_same_time(tmp_path: Path, kind: str) -> None:
    async with chain_of(tmp_path, overlay=_KINDS[kind]) as chain:
        await chain.write(b"old")  # makes the connections
        gates = [Gate(), Gate(), Gate()]
        for replica, gate in zip(chain.replicas, gates, strict=True):
            replica.disk.hold_sync = gate if kind == "blocks" else None
        write = asyncio.create_task(chain.write(b"new"))
        if kind == "blocks":
            await asyncio.gather(*(gate.reached.wait() for gate in gates))  # nobody waits for another one's disk
            assert [replica.committed() for replica in chain.replicas] == [1, 1, 1]
            gates[1].open.set()
            gates[2].open.set()
            await until(lambda: chain[2].pending() == 2 and chain[3].pending() == 2)
            for node in (2, 3):
                assert CHUNK in chain[node].target.early
                assert await chain.read(node) == (1, b"old"), "it counts for nothing yet (P10)"
            assert await chain.query(3) == 1
            assert not write.done()
            gates[0].open.set()
        assert (await write).version == 2
        assert not any(len(replica.target.early) for replica in chain.replicas)
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"new")
            assert chain[node].state() == chain[1].state()
        writes = [chain[node].peers.count(WRITE) for node in (1, 2)]
        assert writes == [1, 1], "the payload of the second write went ahead, and only once"


async def test_the_forward_that_finds_nothing_costs_the_payload_again(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        gate = chain[1].disk.hold_sync = Gate()
        write = asyncio.create_task(chain.write(b"new"))
        await until(lambda: chain[3].pending() == 2 and not len(chain[2].target.locks))
        target = chain[2].target
        async with target.locks.hold(CHUNK, 20):
            target.drop_early(CHUNK)
        gate.open.set()
        assert (await write).version == 2
        assert chain[1].peers.count(FORWARD_VERSIONS) == 1 and chain[1].peers.count(WRITE) == 2
        assert await chain.read(3) == (2, b"new")


@pytest.mark.parametrize("late", [False, True])
async def test_a_change_that_could_not_be_passed_on_comes_with_the_forward(tmp_path: Path, late: bool) -> None:
    """A tail has no room for what comes ahead. With a name and no bytes, the one before it would have to send the whole
    chunk for each change of some bytes, when there is too much to do already. It hears of that before its own copy is
    durable, or after."""
    async with chain_of(tmp_path, overlay=OverlayLimits()) as chain:
        old = bytes(300_000)
        await chain.write(old)
        connection = chain[2].peers.live(chain[3].address, TrafficClass.REPLICATION)
        assert connection is not None
        staged = asyncio.Event()  # at the middle

        async def refuse(*_: object) -> None:
            if late:
                await staged.wait()
            raise Overloaded("too much is under way")

        async def refused() -> None:
            await until(lambda: chain[2].peers.count(STAGE_AHEAD) == 1 and not connection.outstanding)

        async def stage_at_the_middle(*args: Any, **more: Any) -> Any:
            if not late:
                await refused()
            version = await stages[1](*args, **more)
            asyncio.get_running_loop().call_later(0.01, staged.set)
            return version

        async def stage_at_the_head(*args: Any, **more: Any) -> Any:
            await refused()
            return await stages[0](*args, **more)

        stages = [replica.target.engine.stage for replica in chain.replicas]
        chain[1].target.engine.stage = stage_at_the_head  # type: ignore[method-assign]
        chain[2].target.engine.stage = stage_at_the_middle  # type: ignore[method-assign]
        chain[3].storage._pending_recovery._early_staging.stage = refuse  # type: ignore[method-assign, assignment]
        sent = len(chain[2].peers.sent)
        assert (await chain.write(b"new", 1000)).version == 2
        forwarded = [request for _, request in chain[2].peers.sent[sent:] if isinstance(request, pb.WriteRequest)]
        assert [[(write.kind, write.length) for write in each.writes] for each in forwarded] == [[(pb.WRITE, 3)]]
        for replica in chain.replicas:
            assert await chain.read(replica.node) == (2, old[:1000] + b"new" + old[1003:])
            assert not len(replica.target.early)


async def test_a_change_that_stopped_farther_on_is_passed_on_as_a_whole_chunk(tmp_path: Path) -> None:
    """The targets between have sent the bytes ahead as well, and have them no longer: if they were asked for them, each
    would send the whole chunk."""
    async with chain_of(tmp_path, 4, overlay=OverlayLimits()) as chain:
        await chain.write(b"old")
        connection = chain[3].peers.live(chain[4].address, TrafficClass.REPLICATION)
        assert connection is not None

        async def refuse(*_: object) -> None:
            raise Overloaded("too much is under way")

        async def late(*args: Any, **more: Any) -> Any:
            await until(lambda: chain[3].peers.count(STAGE_AHEAD) == 1 and not connection.outstanding)
            return await stage(*args, **more)

        stage = chain[1].target.engine.stage
        chain[1].target.engine.stage = late  # type: ignore[method-assign]
        chain[4].storage._pending_recovery._early_staging.stage = refuse  # type: ignore[method-assign, assignment]
        sent = [len(replica.peers.writes()) for replica in chain.replicas]
        assert (await chain.write(b"new")).version == 2
        kinds = [[w.kind for w in r.peers.writes()[n:]] for r, n in zip(chain.replicas, sent, strict=True)]
        assert kinds == [[pb.WRITE], [pb.WRITE], [pb.WRITE, pb.REPLACE], []], "ahead, and once behind"
        for replica in chain.replicas:
            assert await chain.read(replica.node) == (2, b"new")


@pytest.mark.parametrize("node", [1, 2])
async def test_a_forward_does_not_overtake_its_payload(tmp_path: Path, node: int) -> None:
    """On a link that is slower than the disks, each payload would be sent twice."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        successor = chain[node + 1]
        link = chain[node].peers.live(successor.address, TrafficClass.REPLICATION)
        assert link is not None
        socket = link._stream._stream
        send, taken, limit = socket.send, 0, 1000

        def slow(pieces: Any) -> int:
            """The link takes bytes up to the limit, and nothing more for now."""
            nonlocal taken
            parts, room = [], limit - taken
            for piece in pieces:
                parts.append(memoryview(piece).cast("B")[:room])
                room -= len(parts[-1])
            if taken >= limit:
                raise BlockingIOError
            sent = send(parts)
            taken += sent
            return sent

        socket.send = slow  # type: ignore[method-assign]
        content = bytes(range(256)) * 4096
        write = asyncio.create_task(chain.write(content))
        await until(lambda: chain[node].pending() == 2 and taken == limit)
        await asyncio.sleep(0.1)
        limit = len(content) - 1000  # within the last segment: what is between segments has come before
        await until(lambda: taken == limit)
        await asyncio.sleep(0.1)
        socket.send = send  # type: ignore[method-assign]
        assert (await write).version == 2 and await chain.read(3) == (2, content)
        assert [chain[n].peers.count(WRITE) for n in (1, 2)] == [1, 1], "the payload of the second write was sent once"


async def test_a_payload_that_does_not_get_through_does_not_hold_up_a_new_chain(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        link = chain[1].peers.live(chain[2].address, TrafficClass.REPLICATION)
        assert link is not None

        def stuck(pieces: Any) -> int:
            raise BlockingIOError

        link._stream._stream.send = stuck  # type: ignore[method-assign]
        write = asyncio.create_task(chain.write(b"new"))
        peer = chain[1].storage.reachability._peers[NodeId(2)]
        await until(lambda: chain[1].pending() == 2 and peer.calls == 1)  # so a failed link is noticed as soon as ever
        chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
        assert (await write).version == 2 and await chain.read(3) == (2, b"new")


async def test_a_service_that_does_not_know_it_is_sent_nothing_ahead(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        older = chain[1].peers.live(chain[2].address, TrafficClass.REPLICATION)
        assert older is not None
        older.features = 0
        await chain.write(b"new")
        assert not chain[1].peers.count(STAGE_AHEAD) and not chain[1].peers.count(FORWARD_VERSIONS)
        assert chain[2].peers.count(STAGE_AHEAD) == 1, "the ones behind it do"
        assert await chain.read(3) == (2, b"new")


@pytest.mark.parametrize("kind", _KINDS)
async def test_an_early_version_gives_way_to_another_write(tmp_path: Path, kind: str) -> None:
    """P5: the head lives, and its next write has the same number. P12: bytes of both are behind the committed ones."""
    async with chain_of(tmp_path, overlay=_KINDS[kind]) as chain:
        await chain.write(b"old")
        lost = chain.ahead_row(2, b"lost", 2, offset=3)
        await chain.send_ahead(lost, b"lost")
        await until(lambda: chain[3].pending() == 2)
        assert (await chain.write(b"new", offset=3)).version == 2
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"oldnew")
            assert chain[node].state() == chain[1].state()


async def test_a_change_that_comes_ahead_replaces_only_early_ones(tmp_path: Path) -> None:
    """P2."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        first, second = chain.ahead_row(3, b"first", 2), chain.ahead_row(3, b"second", 2)
        await chain.send_ahead(first, b"first")
        await chain.send_ahead(second, b"second")
        pending = chain[3].record().pending
        assert pending is not None and pending.length == 6 and CHUNK in chain[3].target.early
        await chain.write(b"full")
        pending_before = chain[3].record()
        await chain.send_ahead(second, b"second")
        assert chain[3].record() == pending_before, "an older version is of no account"


async def test_a_full_version_is_not_replaced(tmp_path: Path) -> None:
    """P2."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        await chain.give_up(2, chain.ahead_row(2, b"full", 2), b"full")
        held = chain[2].record()
        with contextlib.suppress(ThreefsError):
            await chain.send_ahead(chain.ahead_row(2, b"other", 2), b"other")
        assert chain[2].record() == held and CHUNK not in chain[2].target.early
        chain[2].peers.before = None
        await until(lambda: chain[3].committed() == 2 and chain[2].committed() == 2)
        assert await chain.read(2) == (2, b"full")


async def test_a_change_ahead_is_checked_like_a_write(tmp_path: Path) -> None:
    """P2."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        for wrong, error in (
            (chain.ahead_row(2, b"x", 4), VersionGap),
            (chain.ahead_row(2, b"x", 2, chain_version=9), ChainChanged),
            (chain.ahead_row(1, b"x", 2), NotServing),
            (chain.ahead_row(2, b"x", 0), InvalidArgument),
            (chain.ahead_row(2, b"x", 2, kind=pb.REPLACE), InvalidArgument),
            (chain.ahead_row(2, b"x", 2, client=b""), InvalidArgument),
            (chain.ahead_row(2, b"x", 2, length=2), InvalidArgument),
        ):
            with pytest.raises(error):
                await chain.send_ahead(wrong, b"x")
        chain[2].target.leased_until = 0
        with pytest.raises(NotServing):
            await chain.send_ahead(chain.ahead_row(2, b"x", 2), b"x")
        assert chain[2].pending() == 0 and not len(chain[2].target.early)


async def test_the_forward_names_the_write(tmp_path: Path) -> None:
    """P5: another identity or stamp under the same number is another write."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        row = chain.ahead_row(3, b"new", 2)
        await chain.send_ahead(row, b"new")
        right = forward(chain, 3, row)
        other = chain.row(b"new").identity
        for wrong in (
            forward(chain, 3, row, identity=other),
            forward(chain, 3, row, stamp=row.stamp + 1),
            forward(chain, 3, row, version=3),
        ):
            with pytest.raises(NotStaged):
                await send_forward(chain, wrong)
        assert CHUNK in chain[3].target.early
        assert (await send_forward(chain, right)).version == 2
        assert await chain.read(3) == (2, b"new")
        assert (await send_forward(chain, right)).version == 2, "a repeat"


@pytest.mark.parametrize("field", ["checksum", "length"])
async def test_a_target_where_the_same_write_makes_other_content_leaves(tmp_path: Path, field: str) -> None:
    """P5: it was applied to other content than at the predecessor."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        row = chain.ahead_row(3, b"new", 2)
        await chain.send_ahead(row, b"new")
        wrong = forward(chain, 3, row)
        setattr(wrong, field, getattr(wrong, field) ^ 1)
        with pytest.raises(ChecksumMismatch):
            await send_forward(chain, wrong)
        assert chain[3].target.leaving and chain[3].committed() == 1


async def test_a_head_finishes_what_came_early(tmp_path: Path) -> None:
    """P7: the head has died, and may have told nobody."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        row = chain.ahead_row(2, b"new", 2)
        await chain.send_ahead(row, b"new")
        await until(lambda: chain[3].pending() == 2)
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        await until(lambda: chain[3].committed() == 2)
        await until(lambda: chain[2].committed() == 2)
        assert await chain.read(3) == (2, b"new")
        repeat = chain.row(b"new", node=2)
        repeat.identity.CopyFrom(row.identity)
        assert (await chain.send(repeat, b"new")).version == 2, "the client's retry finds it"


async def test_a_full_version_stays_full_in_later_chain_versions(tmp_path: Path) -> None:
    """P6: the tail has shown it, and the target before it is the tail now."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        await chain[2].storage.stop()  # nobody takes up what is given up
        await chain.give_up(2, chain.row(b"new", node=2, version=2, seq=7), b"new")
        chain[2].peers.before = None
        await chain.write(b"new", node=3, version=2, seq=7)
        assert await chain.read(3) == (2, b"new")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert await chain.read(2) == (2, b"new")


async def test_an_early_version_stays_early_at_a_replica_that_is_not_head(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        await chain.send_ahead(chain.ahead_row(3, b"new", 2), b"new")
        chain.change((2, SERVING), (3, SERVING), (1, OFFLINE))
        await until(chain[3].target.pending_recovered.is_set)
        assert CHUNK in chain[3].target.early and await chain.read(3) == (1, b"old")


async def test_nothing_is_early_at_a_replica_that_does_not_serve(tmp_path: Path) -> None:
    """P8: what it holds is dropped before it serves again."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        await chain.send_ahead(chain.ahead_row(3, b"new", 2), b"new")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        assert not len(chain[3].target.early) and chain[3].pending() == 2
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await until(lambda: chain[3].target.synced_in_version == chain.version)
        assert chain[3].pending() == 0 and chain[3].state() == chain[1].state()


async def test_a_restarted_replica_has_no_early_versions(tmp_path: Path) -> None:
    """P8: it cannot tell any more which of them others rely on."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        await chain.send_ahead(chain.ahead_row(3, b"new", 2), b"new")
        await chain[3].restart()
        assert chain[3].pending() == 2 and not len(chain[3].target.early)


async def test_a_version_that_is_never_forwarded_is_dropped(tmp_path: Path) -> None:
    """P10."""
    async with chain_of(tmp_path) as chain:
        await chain.send_ahead(chain.ahead_row(3, b"new", 1), b"new")
        early, clock = chain[3].storage._pending_recovery._early_staging, chain[3].storage._clock
        now = clock.monotonic()
        await early.drop(chain[3].target, CHUNK, now - 60, now + 20)
        assert chain[3].pending() == 1, "it may still be forwarded"
        await early.drop(chain[3].target, CHUNK, now + 60, now + 20)
        assert chain[3].record() == Record() and not len(chain[3].target.early)


async def test_a_syncing_successor_gets_the_whole_chunk(tmp_path: Path) -> None:
    """P1: nothing goes ahead to it."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        await until(lambda: chain[3].target.synced_in_version == chain.version)
        before = chain[2].peers.count(STAGE_AHEAD)
        await chain.write(b"new")
        assert chain[2].peers.count(STAGE_AHEAD) == before
        assert chain[3].committed() == 2 and chain[3].state() == chain[1].state()


async def test_an_error_of_the_heads_own_disk_is_an_unknown_outcome(tmp_path: Path) -> None:
    """P11: the successor has the change, and may become head."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"x" * 20_000)
        chain[1].spoil_block()
        with pytest.raises(OutcomeUnknown):
            await chain.write(b"new", offset=5)
        assert CHUNK in chain[1].target.damaged
        await until(lambda: chain[2].pending() == 2)
        assert await chain.read(2) == (1, b"x" * 20_000)
        chain[1].disk.cold = False
        chain[1].disk.bad = set()


async def test_a_refusal_by_the_change_itself_has_no_effect(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        with pytest.raises(InvalidArgument):
            await chain.send(chain.row(b"new", offset=chain.row().chunk_bytes), b"new")
        assert chain[2].pending() == chain[3].pending() == 0
