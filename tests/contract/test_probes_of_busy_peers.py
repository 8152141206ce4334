"""A probe tells a link that has failed from a process that is busy, so it needs nothing of what busy processes lack."""

import asyncio

from tests.harness.rpc import RawPeer, Served
from threefs.rpc import frames
from threefs.rpc.limits import Limits
from threefs.rpc.methods import WRITE
from threefs.rpc.receive_buffers import BodyBudget

MIB = 1 << 20


async def test_a_probe_is_answered_while_other_bodies_wait_for_room() -> None:
    """A few clients with large requests could have a process put out of its chains, as one behind a failed link."""
    async with Served(limits=Limits(bodies_bytes=MIB)) as (server, peers, address), RawPeer(address) as raw:
        await raw.greet()
        frame = frames.encode(frames.REQUEST, WRITE.number, 0, 1, bytes(MIB), 0, 60_000)
        raw.writer.write(frame[: MIB // 2])
        while server.bodies.bytes < MIB:
            await asyncio.sleep(0.005)
        peers.bodies = BodyBudget(MIB)
        assert peers.bodies.take(MIB), "large answers are being received by the process that probes"
        await asyncio.wait_for(peers.probe(address), 5)
        assert server.bodies.bytes == peers.bodies.bytes == MIB
