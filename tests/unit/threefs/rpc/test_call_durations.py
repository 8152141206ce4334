import asyncio

import pytest

from tests.harness.prometheus import samples
from tests.harness.rpc import Served
from threefs.env.clock import CLOCK
from threefs.errors import NotFound
from threefs.rpc.call_durations import CallDurations
from threefs.rpc.methods import LAST_CHUNK, SPACE_INFO
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


async def no_chunk(request: pb.LastChunkRequest) -> pb.LastChunkReply:
    raise NotFound("no such chunk")


async def never(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    await asyncio.Event().wait()
    raise AssertionError


async def test_calls_are_timed_from_the_moment_that_somebody_asks() -> None:
    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, space)
        server.serve(LAST_CHUNK, no_chunk)
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        durations = CallDurations(CLOCK)
        peers.observe_calls(durations)  # of the connection that is there, and of later ones
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5, traffic=TrafficClass.BACKGROUND)
        with pytest.raises(NotFound):
            await peers.call(address, LAST_CHUNK, pb.LastChunkRequest(), timeout_s=5)
        found = samples(durations.metrics())
        assert found["threefs_client_call_duration_seconds_count", "SpaceInfo"] == 2
        assert found["threefs_client_call_duration_seconds_sum", "SpaceInfo"] > 0
        assert found["threefs_client_call_duration_seconds_count", "LastChunk"] == 1
        assert found["threefs_client_call_errors_total", "LastChunk", "NotFound"] == 1
        assert ("threefs_client_call_errors_total", "SpaceInfo", "NotFound") not in found
        assert peers.connection_count(TrafficClass.BACKGROUND) == 1


async def test_a_call_that_is_given_up_is_counted_as_one() -> None:
    async with Served() as (server, peers, address):
        server.serve(SPACE_INFO, never)
        durations = CallDurations(CLOCK)
        peers.observe_calls(durations)
        task = asyncio.create_task(peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=60))
        while not server.traffic[TrafficClass.METADATA].in_flight + server.traffic[TrafficClass.DATA].in_flight:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert samples(durations.metrics())["threefs_client_call_errors_total", "SpaceInfo", "Cancelled"] == 1
