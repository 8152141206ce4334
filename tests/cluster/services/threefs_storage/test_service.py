"""The methods as a peer calls them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.harness.chain_harness import (
    CHUNK,
    OFFLINE,
    SERVING,
    SYNCING,
    Gate,
    TestChain,
    cancelled,
    chain_of,
    target_of,
    until,
)
from threefs.checksums import crc32c
from threefs.errors import (
    ChainChanged,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    LimitExceeded,
    NotServing,
    Unavailable,
)
from threefs.ids import ChunkId
from threefs.rpc.methods import LAST_CHUNK, LIST_CHUNKS, QUERY_VERSION, SPACE_INFO, WRITE
from threefs.wire import storage_pb2 as pb


async def write_all(chain: TestChain, rows: list[pb.ChunkWrite], payload: bytes) -> pb.WriteReply:
    request = pb.WriteRequest(writes=rows)
    return await chain.peers.call(chain[1].address, WRITE, request, timeout_s=20, payload=[payload] if payload else [])


async def test_many_writes_in_one_request_each_have_their_result(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        rows = [chain.row(bytes([n]) * n, chunk=ChunkId(7, n)) for n in range(1, 40)]
        rows[3].checksum ^= 1
        rows[5].chain_version += 7
        reply = await write_all(chain, rows, b"".join(bytes([n]) * n for n in range(1, 40)))
        codes = [result.code for result in reply.results]
        assert [n for n, code in enumerate(codes) if code] == [3, 5]
        assert reply.routing_version == chain.version
        for n in (1, 39):
            assert await chain.read(2, ChunkId(7, n)) == (1, bytes([n]) * n)
        assert not (await write_all(chain, [], b"")).results


@pytest.mark.parametrize("payload", [b"", b"abc", b"abcde"])
async def test_a_payload_shorter_or_longer_than_announced_is_refused(tmp_path: Path, payload: bytes) -> None:
    async with chain_of(tmp_path, 1) as chain:
        with pytest.raises(InvalidArgument, match="announce 4 bytes"):
            await write_all(chain, [chain.row(b"ab"), chain.row(b"cd", chunk=ChunkId(7, 1))], payload)
        assert chain[1].committed() == 0


async def test_too_many_writes_are_refused(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        with pytest.raises(LimitExceeded):
            await write_all(chain, [chain.row(kind=pb.REMOVE)] * 1025, b"")


async def test_an_unexpected_failure_is_logged_and_answered_as_internal(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:

        async def broken(method: object, request: object) -> None:
            raise ZeroDivisionError

        chain[1].peers.before = broken
        with capture_logs() as logs, pytest.raises(Internal, match="ZeroDivisionError"):
            await chain.write(b"x")
        assert any("ZeroDivisionError" in str(log.get("error")) for log in logs)
        chain[1].peers.before = None
        await until(lambda: chain[1].committed() == 1)


async def test_a_write_that_is_cancelled_gives_its_buffers_back_on_all_replicas(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        content = bytes(300_000)
        for step in ("sync", "forward", "before it begins"):
            gate = Gate()
            if step == "sync":
                chain[1].disk.hold_sync = gate
            else:
                chain[2].peers.before = gate
            rows = [chain.row(content, chunk=ChunkId(7, n)) for n in range(3)]
            write = asyncio.create_task(write_all(chain, rows, content * 3))
            if step == "before it begins":
                await asyncio.sleep(0)
            else:
                await gate.reached.wait()
            await cancelled(write)
            gate.open.set()
            chain[1].disk.hold_sync = chain[2].peers.before = None
            await chain.idle()
            await until(lambda: not any(r.target.engine.pending() for r in chain.replicas))


async def test_r1_a_version_query_is_for_the_tail_in_its_chain_version(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        await chain.write(b"x")
        assert await chain.query(2) == 1
        assert await chain.query(2, ChunkId(9, 9)) == 0
        for node in (1, 3):
            with pytest.raises(NotServing):
                await chain.query(node)
        for chain_version in (chain.version - 1, chain.version + 1):
            with pytest.raises(ChainChanged):
                await chain.query(2, chain_version=chain_version)


async def test_r1_a_version_query_finishes_what_is_pending_since_an_older_chain_version(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = chain[2].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"x"))
        await gate.reached.wait()
        chain.change((1, SERVING), (2, SERVING), (3, OFFLINE))
        asked = asyncio.create_task(chain.query(2))
        await until(lambda: len(chain[2].target.locks) > 0)
        gate.open.set()
        assert await asked == 1, "not 0, which another tail may have gone beyond"
        await write


@pytest.mark.parametrize(("inodes", "count"), [([1], 2), ([1, 2], 1), ([1] * 4097, 4097)])
async def test_a_version_query_with_wrong_columns_is_refused(tmp_path: Path, inodes: list[int], count: int) -> None:
    async with chain_of(tmp_path, 1) as chain:
        request = pb.QueryVersionRequest(target=101, chain_version=1, inode=inodes, index=[0] * count)
        with pytest.raises(InvalidArgument):
            await chain.peers.call(chain[1].address, QUERY_VERSION, request, timeout_s=20)


async def last(chain: TestChain, node: int, inode: int = 7, **more: Any) -> pb.LastChunkReply:
    request = pb.LastChunkRequest(
        target=target_of(node), chain_version=more.get("chain_version", chain.version), inode=inode
    )
    timeout_s = more.get("timeout_s", 20)
    return await chain.peers.call(chain[node].address, LAST_CHUNK, request, timeout_s=timeout_s)


async def listed(chain: TestChain, node: int, first: int, limit: int) -> pb.ListChunksReply:
    request = pb.ListChunksRequest(
        target=target_of(node), chain_version=chain.version, inode=7, first_index=first, limit=limit
    )
    return await chain.peers.call(chain[node].address, LIST_CHUNKS, request, timeout_s=20)


async def test_the_tail_knows_the_last_chunk_and_lists_them(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        assert not (await last(chain, 2)).found
        for n in (0, 3, 5, 9):
            await chain.write(b"x" * (n + 1), chunk=ChunkId(7, n))
        await chain.send(chain.row(kind=pb.REMOVE, chunk=ChunkId(7, 9)))
        reply = await last(chain, 2)
        assert (reply.found, reply.index, reply.length) == (True, 5, 6)
        assert not (await last(chain, 2, inode=8)).found
        page = await listed(chain, 2, 0, 2)
        assert (list(page.index), list(page.length), page.more) == ([0, 3], [1, 4], True)
        assert list(page.checksum) == [crc32c(b"x"), crc32c(b"xxxx")]
        page = await listed(chain, 2, 4, 0)
        assert (list(page.index), list(page.length), page.more) == ([5], [6], False)
        with pytest.raises(NotServing):
            await last(chain, 1)
        with pytest.raises(ChainChanged):
            await last(chain, 2, chain_version=chain.version + 1)


async def test_a_list_waits_for_what_a_syncing_target_may_show_any_moment(tmp_path: Path) -> None:
    """It has committed it; the tail, which will, has not heard so yet."""
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        chain.change((1, SERVING), (2, SYNCING))
        gate = chain[1].peers.after = Gate(WRITE)
        write = asyncio.create_task(chain.write(b"new"))
        await gate.reached.wait()
        assert (chain[1].committed(), chain[2].committed()) == (0, 1)
        asked = asyncio.create_task(last(chain, 1))
        other = await last(chain, 1, inode=8)
        assert not other.found and not asked.done()
        gate.open.set()
        await write
        assert ((await asked).found, (await asked).length) == (True, 3)


async def test_the_last_chunk_is_answered_after_earlier_pending_versions_are_finished(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        answered = chain[2].peers.after = Gate()
        write = asyncio.create_task(chain.write(b"xyz"))
        await answered.reached.wait()
        assert (await last(chain, 3)).length == 3, "the tail has shown it"
        gate = chain[2].peers.before = Gate()
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        answered.open.set()
        with pytest.raises(DeadlineExceeded):
            await last(chain, 2, timeout_s=0.05)
        asked = asyncio.create_task(last(chain, 2))
        await asyncio.sleep(0.01)
        assert not asked.done()
        gate.open.set()
        assert (await asked).length == 3
        await write


async def test_a_question_for_the_last_chunk_is_answered_when_the_chain_changes_again(tmp_path: Path) -> None:
    async with chain_of(tmp_path) as chain:
        gate = chain[2].peers.before = Gate()
        write = asyncio.create_task(chain.write(b"xyz"))
        await gate.reached.wait()
        chain.change((1, SERVING), (2, SERVING), (3, SYNCING))
        asked = asyncio.create_task(last(chain, 2))
        await asyncio.sleep(0.01)
        chain.change((2, SERVING), (1, OFFLINE), (3, OFFLINE))
        gate.open.set()
        with pytest.raises(ChainChanged):
            await asked
        await cancelled(write)


async def test_space_is_reported_for_each_target(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        reply = await chain.peers.call(chain[2].address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=20)
        (space,) = reply.targets
        assert (space.target, space.chunks) == (201, 1) and 0 < space.free_bytes <= space.capacity_bytes


async def test_the_story_of_a_chunk_tells_its_versions(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(b"x")
        told = [(event.what, event.facts["version"]) for event in chain[1].storage.trace.of(CHUNK)]
        assert told == [("staged", 1), ("forwarding", 1), ("committed", 1)]


async def test_a_target_that_cannot_be_reached_is_unavailable_until_it_comes(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 2) as chain:
        await chain[2].stop()
        write = asyncio.create_task(chain.write(b"x"))
        await until(lambda: chain[1].pending() == 1)
        assert not write.done()
        await chain[2].restart(chain.routing())
        assert (await write).version == 1
        with pytest.raises(Unavailable):
            await chain.peers.connect("127.0.0.1:1", 1)


async def test_a_request_without_writes_is_answered_however_soon_it_wants_an_answer(tmp_path: Path) -> None:
    async with chain_of(tmp_path, 1) as chain:
        for answer_after_ms in (0, 1):
            request = pb.WriteRequest(answer_after_ms=answer_after_ms)
            assert not (await chain.peers.call(chain[1].address, WRITE, request, timeout_s=20)).results
