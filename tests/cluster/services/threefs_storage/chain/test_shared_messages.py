"""Changes that share messages on their way along the chain."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import shared_messages
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness.chain_harness import OFFLINE, SERVING, Gate, Replica, TestChain, cancelled, chain_of, until
from threefs.errors import NotServing
from threefs.ids import ChunkId
from threefs.rpc.handshake import STAGE_AHEAD_FEATURE
from threefs.rpc.methods import FORWARD_STAGED, FORWARD_VERSIONS, STAGE_AHEAD, WRITE
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb

CHUNKS = [ChunkId(7, number) for number in range(8)]
DEFERRED = OverlayLimits()
_METHODS = (STAGE_AHEAD, FORWARD_VERSIONS, FORWARD_STAGED, WRITE)


async def write_all(chain: TestChain, contents: Sequence[bytes], offset: int = 0) -> list[pb.ChunkWriteResult]:
    """One message with a change of each of the first chunks."""
    rows = [chain.row(content, offset, chunk=chunk) for chunk, content in zip(CHUNKS, contents, strict=False)]
    reply = await chain.peers.call(
        chain[chain.members[0][0]].address,
        WRITE,
        pb.WriteRequest(writes=rows),
        timeout_s=20,
        payload=[b"".join(contents)],
    )
    return list(reply.results)


def contents(letter: bytes, count: int = 8) -> list[bytes]:
    """Of different lengths."""
    return [letter * (100 + number) for number in range(count)]


async def assert_all_hold(chain: TestChain, expected: Sequence[bytes]) -> None:
    for chunk, content in zip(CHUNKS, expected, strict=False):
        for replica in chain.replicas:
            assert (await chain.read(replica.node, chunk=chunk))[1] == content


def counts(chain: TestChain, node: int) -> list[int]:
    return [chain[node].peers.count(method) for method in _METHODS]


async def test_the_changes_of_a_message_go_along_the_chain_together(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))  # makes the connections
        before = [counts(chain, node) for node in (1, 2)]
        results = await write_all(chain, contents(b"n"))
        assert [(result.code, result.version, result.length) for result in results] == [
            (0, 2, len(content)) for content in contents(b"n")
        ]
        for node, old in zip((1, 2), before, strict=True):
            new = [after - earlier for after, earlier in zip(counts(chain, node), old, strict=True)]
            assert new == [1, 1, 0, 0], "one message with the payload of eight changes, and one with their names"
        await assert_all_hold(chain, contents(b"n"))
        assert not any(len(replica.target.early) for replica in chain.replicas)


async def test_a_change_that_is_alone_goes_ahead_at_once(tmp_path: Path) -> None:
    """The turn of the loop may end with a sync, which the successor should begin at the same time."""
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await chain.write(b"old")
        sent: list[int] = []
        stage = chain[1].target.engine.stage

        def staged(*args: object, **more: object) -> object:
            sent.append(chain[1].peers.count(STAGE_AHEAD))
            return stage(*args, **more)  # type: ignore[arg-type]

        chain[1].target.engine.stage = staged  # type: ignore[method-assign, assignment]
        await chain.write(b"new")
        assert sent == [1]


async def test_large_changes_go_by_themselves(tmp_path: Path) -> None:
    """A copy would cost more than a message."""
    large = [b"l" * (shared_messages.SHARED_BYTES + 1)] * 3
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o", 3))
        before = chain[1].peers.count(STAGE_AHEAD)
        assert not any(result.code for result in await write_all(chain, large))
        assert chain[1].peers.count(STAGE_AHEAD) == before + 3
        await assert_all_hold(chain, large)


async def test_a_message_of_one_change_is_answered_as_one_of_several(tmp_path: Path) -> None:
    """The other change of its turn is large. An answer without a result counted as a failure, and the bytes were sent
    once more."""
    async with chain_of(tmp_path, 2, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o", 2))
        before = counts(chain, 1)
        gate, stage = Gate(), chain[1].target.engine.stage

        async def slowly(*args: Any, **more: Any) -> Any:
            staged = await stage(*args, **more)
            await gate.passed()
            return staged

        chain[1].target.engine.stage = slowly  # type: ignore[method-assign]
        new = [b"n" * 100, b"l" * (shared_messages.SHARED_BYTES + 1)]
        write = asyncio.create_task(write_all(chain, new))
        await until(lambda: all(chain[2].pending(chunk) == 2 for chunk in CHUNKS[:2]))
        connection = chain[1].peers.live(chain[2].address, TrafficClass.REPLICATION)
        assert connection is not None
        await until(lambda: not connection.outstanding)
        gate.open.set()
        assert not any(result.code for result in await write)
        ahead, _, _, again = [after - earlier for after, earlier in zip(counts(chain, 1), before, strict=True)]
        assert (ahead, again) == (2, 0)
        await assert_all_hold(chain, new)


async def test_a_message_has_a_bound_of_bytes_and_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_messages, "_MAX_MESSAGE_BYTES", 250)
    monkeypatch.setattr(shared_messages, "_MAX_CALLS", 3)
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        await write_all(chain, contents(b"n"))
        messages = [request for _, request in chain[1].peers.sent if isinstance(request, pb.StageAheadRequest)]
        assert all(sum(write.length for write in each.writes) <= 250 for each in messages)
        names = [request for _, request in chain[1].peers.sent if isinstance(request, pb.ForwardVersionsRequest)]
        assert all(len(each.versions) <= 3 for each in names)
        await assert_all_hold(chain, contents(b"n"))


async def test_a_slow_chunk_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shared_messages, "_ANSWER_AFTER_MS", 20)
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        alone = chain[1].peers.count(FORWARD_STAGED)
        async with chain[2].target.locks.hold(CHUNKS[0], 20):
            write = asyncio.create_task(write_all(chain, contents(b"n")))
            await until(lambda: all(chain[1].committed(chunk) == 2 for chunk in CHUNKS[1:]))
            assert chain[1].committed(CHUNKS[0]) == 1 and not write.done()
            await until(lambda: chain[1].peers.count(FORWARD_STAGED) == alone + 1)
        assert not any(result.code for result in await write)
        await assert_all_hold(chain, contents(b"n"))
    assert not [each for each in caplog.records if each.levelname == "ERROR"], "each message is answered once"


async def test_what_is_lost_on_the_way_is_sent_again_by_itself(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        again = chain[1].peers.count(WRITE)
        early_staging = chain[2].storage._pending_recovery._early_staging
        stage = early_staging.stage

        async def forgetful(target: object, write: pb.ChunkWrite, *rest: object) -> None:
            if write.chunk.index == 3:
                raise NotServing("it was lost")
            await stage(target, write, *rest)  # type: ignore[arg-type]

        early_staging.stage = forgetful  # type: ignore[method-assign, assignment]
        assert not any(result.code for result in await write_all(chain, contents(b"n")))
        assert chain[1].peers.count(WRITE) == again + 1
        await assert_all_hold(chain, contents(b"n"))


async def test_a_service_of_an_older_release_gets_each_change_by_itself(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        older = chain[1].peers.live(chain[2].address, TrafficClass.REPLICATION)
        assert older is not None
        older.features = STAGE_AHEAD_FEATURE
        before = [counts(chain, node) for node in (1, 2)]
        await write_all(chain, contents(b"n"))
        assert [after - earlier for after, earlier in zip(counts(chain, 1), before[0], strict=True)] == [8, 0, 8, 0]
        await assert_all_hold(chain, contents(b"n"))


async def test_a_lost_message_costs_a_repeat(tmp_path: Path) -> None:
    """The connection ends while the names are on their way."""
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        async with chain[3].target.locks.hold(CHUNKS[0], 20):
            write = asyncio.create_task(write_all(chain, contents(b"n")))
            await until(lambda: chain[1].peers.count(FORWARD_VERSIONS) == 2)
            connection = chain[1].peers.live(chain[2].address, TrafficClass.REPLICATION)
            assert connection is not None
            connection.close()
        assert not any(result.code for result in await write)
        await assert_all_hold(chain, contents(b"n"))


async def test_a_change_of_the_chain_ends_what_shares_a_message(tmp_path: Path) -> None:
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        async with chain[2].target.locks.hold(CHUNKS[0], 20):
            write = asyncio.create_task(write_all(chain, contents(b"n")))
            await until(lambda: chain[1].pending(CHUNKS[0]) == 2)
            chain.change((1, SERVING), (3, SERVING), (2, OFFLINE))
            assert not any(result.code for result in await write)
        for chunk, content in zip(CHUNKS, contents(b"n"), strict=True):
            assert (await chain.read(3, chunk=chunk))[1] == content


async def test_what_goes_ahead_goes_on_when_its_sender_has_staged_it(tmp_path: Path) -> None:
    """Only changes that were given up cancel a message: the middle target was done with it, and cancelled it at a tail
    that took longer."""
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o"))
        again = chain[2].peers.count(WRITE)  # without a connection, changes go by themselves
        gate, stage = Gate(), chain[3].target.engine.stage

        async def slowly(*args: Any, **more: Any) -> Any:
            await gate.passed()
            return await stage(*args, **more)

        chain[3].target.engine.stage = slowly  # type: ignore[method-assign]
        write = asyncio.create_task(write_all(chain, contents(b"n")))
        await gate.reached.wait()
        await until(lambda: all(chain[2].pending(chunk) == 2 for chunk in CHUNKS) and not takes_ahead(chain[2]))
        await asyncio.sleep(0.05)
        assert takes_ahead(chain[3])
        gate.open.set()
        assert not any(result.code for result in await write)
        assert chain[2].peers.count(WRITE) == again
        await assert_all_hold(chain, contents(b"n"))


def takes_ahead(replica: Replica) -> bool:
    """Whether a change that comes ahead is under way there."""
    calls = [call for connection in replica.server._connections for call in connection.calls.values()]
    return any(call.method is STAGE_AHEAD for call in calls)


async def test_a_message_of_which_every_change_was_cancelled_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver would hold the locks of the chunks until its own deadline, and the next attempts would wait."""
    monkeypatch.setattr(shared_messages, "_MESSAGE_S", 600.0)
    async with chain_of(tmp_path, overlay=DEFERRED) as chain:
        await write_all(chain, contents(b"o", 2))
        async with chain[3].target.locks.hold(CHUNKS[0], 20), chain[3].target.locks.hold(CHUNKS[1], 20):
            write = asyncio.create_task(write_all(chain, contents(b"n", 2)))
            await until(lambda: chain[2].peers.count(FORWARD_VERSIONS) > 0 and len(chain[2].target.locks) == 2)
            await cancelled(write)
            await until(lambda: not any(each.calls for each in chain[2].server._connections))
        await until(lambda: chain[1].committed(CHUNKS[0]) == chain[1].committed(CHUNKS[1]) == 2)  # in the background
        await assert_all_hold(chain, contents(b"n", 2))
