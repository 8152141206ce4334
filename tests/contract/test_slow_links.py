"""Peers behind a slow link are no dead ones."""

import asyncio

import pytest

from tests.harness.rpc import TcpNet, hello_frame, identity
from threefs.errors import ConnectionLost
from threefs.rpc import frames
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import HEADER_BYTES
from threefs.rpc.limits import Limits
from threefs.rpc.methods import WRITE
from threefs.wire import storage_pb2 as pb

PIECES = 8


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
