"""What answers that nobody takes can make a service hold is bounded, of all connections together."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.harness.rpc import RawPeer, Served
from threefs.rpc import frames
from threefs.rpc.limits import Limits
from threefs.rpc.methods import SPACE_INFO
from threefs.wire import storage_pb2 as pb

MIB = 1 << 20


@pytest.mark.parametrize("loop", ["asyncio"])
async def test_small_answers_that_nobody_takes_have_a_bound_of_all_connections(loop: str) -> None:
    """Each connection had room for 64 MiB of them, whatever the others had, and for more if calls came together."""
    async with Served(limits=Limits(process_bytes=4 * MIB, queued_bytes=2 * MIB)) as (server, _, address):
        assert server._check_timer is not None
        server._check_timer.cancel()  # a look in between would let go of peers that take nothing

        reply = pb.SpaceInfoReply(targets=[pb.TargetSpace(target=1)] * 10_000)

        async def small(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
            return reply

        server.serve(SPACE_INFO, small)
        count = 600
        asked = b"".join(frames.encode(frames.REQUEST, SPACE_INFO.number, 0, n, b"", 0, 60_000) for n in range(count))
        async with AsyncExitStack() as stack:
            raws = [await stack.enter_async_context(RawPeer(address)) for _ in range(8)]
            for raw in raws:
                await raw.greet()
                raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
                raw.writer.write(asked)
            while not all(session.stream._blocked for session in server._connections):
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.3)
            waiting = sum(session.stream.queued_bytes for session in server._connections)
            assert waiting == server.queued.total_bytes <= 5 * MIB
            for raw in raws:
                raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
                for _ in range(count):
                    header, _ = await raw.frame()
                    assert header.kind == frames.RESPONSE, "once they read, all is answered"
            assert server.queued.total_bytes == 0
