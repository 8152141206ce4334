"""Batched reads at replicas of a running chain."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from threefs_storage.chain.reads import PARALLEL, TURN_ROWS

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    Replica,
    TestChain,
    cancelled,
    chain_of,
    target_of,
    until,
)
from threefs.errors import (
    ChainChanged,
    ChunkNotFound,
    CorruptChunk,
    DeadlineExceeded,
    InvalidArgument,
    LimitExceeded,
    NoSpace,
    NotServing,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.rpc.methods import LAST_CHUNK, QUERY_VERSION, READ, WRITE
from threefs.wire import storage_pb2 as pb

OTHER = ChunkId(7, 1)


async def dirty(chain: TestChain, node: int, moment: str) -> "tuple[Gate, asyncio.Task[pb.ChunkWriteResult]]":
    """Version 2 is pending at `node`: `before` its successor heard of it, or `after` that has committed it."""
    await chain.write(b"old")
    gate = Gate()
    setattr(chain[node].peers, moment, gate)
    write = asyncio.create_task(chain.write(b"new"))
    await gate.reached.wait()
    assert (chain[node].committed(), chain[node].pending()) == (1, 2)
    return gate, write


@pytest.mark.parametrize(("moment", "expected"), [("before", (1, b"old")), ("after", (2, b"new"))])
async def test_r1_a_dirty_replica_answers_what_the_tail_says(
    tmp_path: Path, moment: str, expected: tuple[int, bytes]
) -> None:
    async with chain_of(tmp_path) as chain:
        gate, write = await dirty(chain, 2, moment)
        assert await chain.read(3) == expected
        for node in (1, 2):
            assert await chain.read(node) == expected
            queries = [request for name, request in chain[node].peers.sent if name == "QueryVersion"]
            assert [query.target for query in queries] == [target_of(3)]  # type: ignore[attr-defined]
        gate.open.set()
        await write
        for node in (1, 2, 3):
            assert await chain.read(node) == (2, b"new")
            assert chain[node].peers.count(QUERY_VERSION) == (node != 3), "a clean replica asks nobody"


async def test_r1_the_last_target_that_writes_reach_is_asked_also_while_it_is_syncing(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        gate, write = await dirty(chain, 2, "after")
        assert chain[3].committed() == 2
        assert await chain.read(1) == await chain.read(2) == (2, b"new"), "it may serve any moment"
        for node in (1, 2):
            queries = [request for name, request in chain[node].peers.sent if name == "QueryVersion"]
            assert [query.target for query in queries] == [target_of(3)]  # type: ignore[attr-defined]
        gate.open.set()
        await write


async def test_r1_what_a_syncing_target_has_of_another_history_says_nothing_of_a_pending_version(
    tmp_path: Path,
) -> None:
    """An administrator has accepted the loss of a target that had served alone. It returns with a version of the same
    number, which the resync replaces; the pending one here is committed by nobody."""
    async with chain_of(tmp_path) as chain:
        await chain.write(b"old")
        chain.change((3, SERVING), (1, OFFLINE), (2, OFFLINE))
        await chain.write(b"lost", node=3)
        chain[2].storage._resync.restart = lambda target: None  # type: ignore[method-assign]
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        gate = chain[2].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"new"))
        await gate.reached.wait()
        assert (chain[2].committed(), chain[2].pending(), chain[3].committed()) == (1, 2, 2)
        chain[2].peers.before = None
        assert await chain.query(3) == 0
        assert await chain.read(1) == await chain.read(2) == (1, b"old"), "the next reader may meet one without it"
        gate.open.set()
        await write
        assert [replica.committed() for replica in chain.replicas] == [2, 2, 2]


async def test_r1_no_member_answers_with_less_than_one_that_has_just_become_serving(tmp_path: Path) -> None:
    """The answer to a forward is late, and so is the news that who has committed it serves now."""
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        gate, write = await dirty(chain, 2, "after")
        before = chain.version
        chain.change((1, SERVING), (2, SERVING), (3, SERVING), learned_by=[3])
        assert await chain.read(3) == (2, b"new")
        for node in (1, 2):
            with pytest.raises(ChainChanged):
                await chain.read(node, chain_version=[before])
        gate.open.set()
        await cancelled(write)


async def test_what_a_lost_tail_has_shown_is_finished_before_it_is_read(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate, write = await dirty(chain, 2, "after")
        assert await chain.read(3) == (2, b"new")
        await chain[3].stop()
        await cancelled(write)
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        reads = [asyncio.create_task(chain.read(node)) for node in (1, 2)]
        queries = asyncio.create_task(chain.query(2))
        await asyncio.sleep(0.01)
        gate.open.set()
        assert await asyncio.gather(*reads) == [(2, b"new")] * 2, "not the older one again"
        assert await queries == 2


async def test_a_pending_version_of_an_older_chain_version_is_not_covered_by_the_tail(tmp_path: Path) -> None:
    """With nobody driving it: the read itself finishes it."""
    async with chain_of(tmp_path) as chain:
        _, write = await dirty(chain, 1, "before")
        await chain[1].restart()
        assert await chain.read(1) == (2, b"new")
        assert [replica.committed() for replica in chain.replicas] == [2, 2, 2]
        await cancelled(write)


async def test_a_reader_does_not_hear_that_the_disk_has_no_room_to_finish_a_version(tmp_path: Path) -> None:
    """Others have room, or this one soon has again. Reads and questions for the length ended with "no space"."""
    async with chain_of(tmp_path, 2) as chain:
        await chain.give_up(1, chain.row(b"new"), b"new")
        chain.change((1, SERVING), (2, OFFLINE))
        table: Any = chain[1].target.engine._store._table
        table.failure, reopen, table.reopen = NoSpace("full"), table.reopen, no_room
        with pytest.raises(Unavailable):
            await chain.read(1)
        request = pb.LastChunkRequest(target=target_of(1), chain_version=chain.version, inode=CHUNK.inode)
        with pytest.raises(Unavailable, match="full"):
            await chain.peers.call(chain[1].address, LAST_CHUNK, request, timeout_s=20)
        table.reopen = reopen
        async with asyncio.timeout(20):
            while chain[1].committed() < 1:
                await asyncio.sleep(0.05)
        assert await chain.read(1) == (1, b"new")


async def no_room() -> None:
    raise NoSpace("full")


async def test_a_chain_change_while_the_tail_is_asked_is_noticed(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate, write = await dirty(chain, 2, "after")
        asking = chain[1].peers.after = Gate(QUERY_VERSION)
        read = asyncio.create_task(chain.read(1))
        await asking.reached.wait()
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        asking.open.set()
        with pytest.raises(ChainChanged):
            await read
        gate.open.set()
        await write


async def test_a_tail_that_does_not_answer_fails_the_row_only(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"clean", chunk=OTHER)
        gate, write = await dirty(chain, 1, "before")

        async def lost(method: object, request: object) -> None:
            raise Unavailable("the tail is away")

        chain[1].peers.before = lost
        reply, content = await chain.read_rows(1, [(CHUNK, 0, 10), (OTHER, 0, 10)])
        assert list(reply.code) == [Unavailable.code, 0] and content == b"clean"
        chain[1].peers.before = None
        gate.open.set()
        await write


async def test_a_target_that_is_closed_while_rows_wait_for_their_turn_fails_its_rows_only(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        await chain.write(b"clean", chunk=OTHER)
        gate, write = await dirty(chain, 2, "before")
        asking = chain[2].peers.before = Gate(QUERY_VERSION)
        read = asyncio.create_task(chain.read_rows(2, [(OTHER, 0, 5), *[(CHUNK, 0, 1)] * (PARALLEL + 1)]))
        await asking.reached.wait()
        targets, target = chain[2].targets, chain[2].target
        del targets.by_id[target.target_id]
        asking.open.set()
        reply, content = await read
        assert list(reply.code) == [0] * (PARALLEL + 1) + [NotServing.code]
        assert content == b"clean" + b"o" * PARALLEL
        targets.by_id[target.target_id] = target
        chain[2].peers.before = None
        gate.open.set()
        await write


@pytest.mark.parametrize("difference", [-1, 1])
async def test_r3_rows_of_another_chain_version_are_refused(tmp_path: Path, difference: int) -> None:
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, SERVING))
        await chain.write(b"x")
        with pytest.raises(ChainChanged):
            await chain.read(1, chain_version=[chain.version + difference])
        with pytest.raises(NotServing):
            await chain.read(1, target=[201])


async def test_targets_that_do_not_serve_are_not_read(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        for state in (OFFLINE, SYNCING):
            chain.change((1, SERVING), (2, state))
            with pytest.raises(NotServing):
                await chain.read(2)


@pytest.mark.parametrize("cold", [False, True])
async def test_rows_of_a_batch_are_answered_each_for_itself(tmp_path: Path, cold: bool) -> None:
    async with chain_of(tmp_path, 2) as chain:
        big = bytes(range(256)) * 1200  # not a whole number of blocks
        await chain.write(big)
        await chain.write(b"small", chunk=OTHER)
        await chain.send(chain.row(kind=pb.EXTEND, length=0, chunk=ChunkId(7, 2)))
        chain[2].disk.cold = cold
        rows = [
            (CHUNK, 0, len(big)),
            (OTHER, 0, 100),
            (ChunkId(8, 0), 0, 10),
            (OTHER, 2, 2),
            (OTHER, 5, 5),
            (OTHER, 99, 5),
            (OTHER, 0, 0),
            (ChunkId(7, 2), 0, 5),
            (CHUNK, 100_001, 70_000),
            (CHUNK, len(big) - 3, 100),
        ]
        reply, content = await chain.read_rows(2, rows)
        assert list(reply.code) == [0, 0, ChunkNotFound.code, *[0] * 7]
        assert list(reply.length) == [len(big), 5, 0, 2, 0, 0, 0, 0, 70_000, 3]
        assert content == big + b"small" + b"al" + big[100_001:170_001] + big[-3:]
        assert list(reply.version) == [1, 1, 0, 1, 1, 1, 1, 1, 1, 1]
        assert reply.routing_version == chain.version
        empty, nothing = await chain.read_rows(2, [])
        assert not empty.code and nothing == b""


@pytest.mark.parametrize("column", ["target", "chain_version", "inode", "index", "offset", "length"])
async def test_columns_of_unequal_length_are_refused(tmp_path: Path, column: str) -> None:
    async with chain_of(tmp_path, 1) as chain:
        for values in ([], [1, 1]):
            wrong: dict[str, Any] = {column: values}
            with pytest.raises(InvalidArgument):
                await chain.read_rows(1, [(CHUNK, 0, 1)], **wrong)


async def test_too_many_rows_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        with pytest.raises(LimitExceeded):
            await chain.read_rows(1, [(CHUNK, 0, 1)] * 4097)
        with pytest.raises(LimitExceeded):
            await chain.read_rows(1, [(CHUNK, 0, 1 << 20)] * 65)
        reply, _ = await chain.read_rows(1, [(CHUNK, 0, 0)] * 4096)
        assert len(reply.code) == 4096


def damage(replica: Replica, content: bytes) -> None:
    for path in (replica.directory / f"target-{replica.target_id}" / "blocks").iterdir():
        data = path.read_bytes()
        place = data.find(content)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([content[0] ^ 1]))
            return
    raise AssertionError("the content is not there")


@pytest.mark.parametrize("cold", [False, True])
async def test_damage_is_answered_by_a_code_and_logged_once_for_each_chunk(tmp_path: Path, cold: bool) -> None:
    async with chain_of(tmp_path, 2) as chain:
        for chunk, content in ((CHUNK, b"precious" * 50), (OTHER, b"dear" * 50)):
            await chain.write(content, chunk=chunk)
            damage(chain[1], content)
        chain[1].disk.cold = cold
        with capture_logs() as logs:
            for _ in range(2):
                reply, content = await chain.read_rows(1, [(CHUNK, 0, 400), (OTHER, 0, 200)])
                assert list(reply.code) == [CorruptChunk.code] * 2 and content == b"", "no wrong byte (I12)"
        assert sorted((log["chunk"], log["target"], log["log_level"]) for log in logs if "chunk" in log) == [
            (CHUNK, 101, "warning"),
            (OTHER, 101, "warning"),
        ]
        assert await chain.read(2) == (1, b"precious" * 50), "another replica has it"


async def test_a_buffer_is_not_used_again_while_a_cancelled_read_still_fills_it(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        await chain.write(b"x" * 100_000)
        disk, pool = chain[1].disk, chain[1].server.pool
        disk.cold = True
        gate = disk.hold_read = Gate()
        read = asyncio.create_task(chain.read_rows(1, [(CHUNK, 0, 100_000), (OTHER, 0, 5), (CHUNK, 0, 9)]))
        await gate.reached.wait()
        await cancelled(read)
        await chain.peers.close()  # a second reason to end
        gate.open.set()
        await until(lambda: pool.lent == 0)


async def test_a_read_that_is_cancelled_before_it_begins_keeps_no_buffer(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        await chain.write(b"x" * 100_000)
        chain[1].disk.cold = True
        connection = await chain.peers.connect(chain[1].address, 5)
        for _ in range(20):
            request = pb.ReadRequest(
                target=[101], chain_version=[1], inode=[7], index=[0], offset=[0], length=[100_000]
            )
            connection.call(READ, request, timeout_s=5).cancel()  # both frames leave together
        await chain.read(1)
        await until(lambda: chain[1].server.pool.lent == 0)


async def test_a_dirty_read_does_not_outlast_its_call(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate, write = await dirty(chain, 2, "before")
        asking = chain[2].peers.before = Gate(QUERY_VERSION)
        with pytest.raises(DeadlineExceeded):
            await chain.read(2, timeout_s=0.05)
        chain[2].peers.before = None
        asking.open.set()
        gate.open.set()
        await write
        assert chain[2].peers.count(WRITE) == 2


async def test_a_long_batch_lets_others_have_their_turn_and_is_answered_in_order(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        content = bytes(range(256)) * 16
        await chain.write(content)
        rows = [(CHUNK if n % 3 else OTHER, n % 4000, 64) for n in range(3 * TURN_ROWS)]
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1

        seen: list[int] = []
        reads = chain[1].storage._reads
        plain = reads._read_some

        def counted(asked: Iterable[Sequence[int]], *rest: Any, **more: Any) -> int:
            some = list(asked)
            seen.append(len(some))
            asyncio.get_running_loop().call_soon(turn)
            assert turns == len(seen) - 1, "others had their turn"
            return plain(some, *rest, **more)

        reads._read_some = counted  # type: ignore[method-assign]
        reply, got = await chain.read_rows(1, rows)
        assert seen == [TURN_ROWS] * 3
        expected = [content[offset : offset + 64] if chunk == CHUNK else b"" for chunk, offset, _ in rows]
        assert got == b"".join(expected) and list(reply.length) == [len(one) for one in expected]
        turns, seen = 0, []
        await chain.read_rows(1, [(CHUNK, 0, 4096)] * TURN_ROWS)
        assert seen == [TURN_ROWS]
