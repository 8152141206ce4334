import pytest

from tests.harness.rpc import Served
from threefs.errors import Unavailable
from threefs.rpc.methods import SPACE_INFO
from threefs.rpc.server import Server
from threefs.rpc.server_metrics import server_metrics
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire import storage_pb2 as pb


async def space(request: pb.SpaceInfoRequest) -> pb.SpaceInfoReply:
    return pb.SpaceInfoReply()


def samples(server: Server) -> dict[tuple[str, ...], float]:
    families = server_metrics(server)
    return {(sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples}


async def test_calls_are_counted_and_timed_by_class_and_method() -> None:
    async with Served() as (server, peers, address):
        with pytest.raises(Unavailable):  # it serves nothing yet
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5)
        refused = samples(server)["threefs_rpc_refused_calls_total",]
        assert refused >= 1
        server.serve(SPACE_INFO, space)
        for _ in range(3):
            traffic = TrafficClass.BACKGROUND
            await peers.call(address, SPACE_INFO, pb.SpaceInfoRequest(), timeout_s=5, traffic=traffic)
        found = samples(server)
        assert found["threefs_rpc_calls_total", "background"] == 3
        assert found["threefs_rpc_in_flight", "background"] == 0
        assert found["threefs_rpc_connections", "background"] == 1
        assert found["threefs_rpc_received_bytes_total", "background"] > 0
        assert found["threefs_rpc_call_duration_seconds_count", "background", "SpaceInfo"] == 3
        assert found["threefs_rpc_call_duration_seconds_sum", "background", "SpaceInfo"] > 0
        assert found["threefs_rpc_refused_calls_total",] == refused
        assert found["threefs_rpc_calls_total", "data"] == 0


async def test_memory_that_peers_hold_is_shown() -> None:
    async with Served() as (server, _, _):
        server.held.bytes, server.held.announced, server.held.granted = 4096, 7, 5
        found = samples(server)
        assert found["threefs_rpc_held_answer_bytes",] == 4096
        assert found["threefs_rpc_held_answers_total", "announced"] == 7
        assert found["threefs_rpc_held_answers_total", "granted"] == 5
        assert found["threefs_rpc_lent_bytes",] == found["threefs_rpc_request_bytes",] == 0
