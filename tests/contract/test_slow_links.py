"""Peers behind a slow link are no dead ones, and chunks pass it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from threefs_storage.chain import copies, pending_recovery, resync, successor
from threefs_storage.health import chunk_repair

from tests.harness.chain_harness import CHUNK, OFFLINE, SERVING, SYNCING, Replica, chain_of, until
from tests.harness.rpc import TcpNet, hello_frame, identity
from threefs.errors import ConnectionLost
from threefs.rpc import frames
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import HEADER_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import WRITE
from threefs.wire import storage_pb2 as pb

PIECES = 8
CONTENT = b"slow" * (1 << 18)
SOON_S = 0.1  # what a call without bytes has here
PASSING_S = 0.5  # of the bytes of a chunk of 1 MiB


@pytest.mark.parametrize("stops", [False, True])
async def test_a_ping_waits_for_an_answer_that_is_coming_and_not_for_one_that_has_stopped(stops: bool) -> None:
    """The answer to a ping comes behind a large answer. While that came, the connection was closed, with all its calls,
    and the next service began to send the same."""
    reply = pb.WriteReply(results=[pb.ChunkWriteResult(message="x" * 100_000)])
    over, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def frame() -> frames.Header:
            header = frames.decode(await reader.readexactly(HEADER_BYTES), 0, Limits())
            await reader.readexactly(header.body_bytes)
            return header

        try:
            await frame()
            writer.write(hello_frame(identity("c" * 32)))
            header = await frame()
            answer = frames.encode(frames.RESPONSE, WRITE.number, 0, header.call_id, reply.SerializeToString())
            size = len(answer) // PIECES + 1
            for place in range(0, len(answer), size):
                writer.write(answer[place : place + size])
                await asyncio.sleep(0.1)
                if stops and place:
                    break
            await over.wait()
        finally:
            writer.close()
            ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    peers = ConnectionPool(TcpNet(), identity())
    connection = await peers.connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 5)
    call = connection.call(WRITE, pb.WriteRequest(), timeout_s=20)
    try:
        if stops:
            with pytest.raises(ConnectionLost, match="ping"):
                await connection.ping(0.4)
            with pytest.raises(ConnectionLost):
                await call
        else:
            await connection.ping(0.4)
            assert await call == reply
    finally:
        await peers.close()
        over.set()
        await ended.wait()
        server.close()


def slow_down(replica: Replica, name: str) -> None:
    """From now on this method of its engine takes as long as the bytes of a chunk on a slow link."""
    fast = getattr(replica.target.engine, name)

    async def slow(*args: Any, **more: Any) -> Any:
        await asyncio.sleep(PASSING_S)
        return await fast(*args, **more)

    setattr(replica.target.engine, name, slow)


@pytest.mark.parametrize("sends_ahead", [False, True])
async def test_a_large_change_passes_to_a_serving_successor(
    sends_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent again and again, each time for as long as a small one may take."""
    monkeypatch.setattr(successor, "_ATTEMPT_S", SOON_S)
    async with chain_of(tmp_path, 2) as chain:
        chain[1].peers.sends_ahead = sends_ahead
        await chain.write(b"small")  # which opens the connection
        before = chain[1].peers.count(WRITE)
        slow_down(chain[2], "stage")
        await chain.write(CONTENT)
        assert chain[1].peers.count(WRITE) - before == (0 if sends_ahead else 1), "the payload is sent once"


async def test_a_version_that_was_given_up_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else drives it: the chunk took no write any more."""
    monkeypatch.setattr(successor, "_ATTEMPT_S", SOON_S)
    monkeypatch.setattr(pending_recovery, "_TURN_S", SOON_S)
    async with chain_of(tmp_path, 2) as chain:
        slow_down(chain[2], "stage")
        await chain.give_up(1, chain.row(CONTENT), CONTENT)
        chain[1].peers.before = None
        async with asyncio.timeout(10):
            await until(lambda: chain[1].committed() == chain[2].committed() == 1)


async def test_a_chunk_passes_to_a_target_that_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(successor, "_ATTEMPT_S", SOON_S)
    monkeypatch.setattr(resync, "_SEND_S", SOON_S)
    async with chain_of(tmp_path, 2) as chain:
        chain.change((1, SERVING), (2, OFFLINE))
        await chain.write(CONTENT)
        slow_down(chain[2], "stage")
        chain.change((1, SERVING), (2, SYNCING))
        async with asyncio.timeout(10):
            await until(lambda: chain[2].target.synced_in_version == chain.version)
        assert chain[1].peers.count(WRITE) == 1, "it is sent once"


async def test_a_damaged_chunk_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_FETCH_S", SOON_S)
    monkeypatch.setattr(chunk_repair, "_TURN_S", SOON_S)
    async with chain_of(tmp_path, 2) as chain:
        await chain.write(CONTENT)
        chain[1].spoil_block()
        slow_down(chain[2], "read_cold")
        assert chain[1].target.note_damage(CHUNK)
        async with asyncio.timeout(10):
            await until(lambda: chain[1].target.repaired_chunks == 1)
