from threefs_storage.metrics import metrics
from threefs_storage.scheduling.background_scheduler import Work, WorkCounters

from tests.harness.rpc import identity
from threefs.env.net import RealNet
from threefs.rpc.server import Server
from threefs.rpc.traffic_class import TrafficClass


async def test_every_class_and_kind_of_work_has_its_figures() -> None:
    server = Server(RealNet(), identity())
    server.traffic[TrafficClass.BACKGROUND].begin_call(1.0)
    server.held.bytes, server.held.announced, server.held.granted = 4096, 7, 5
    work = {each: WorkCounters() for each in Work}
    work[Work.FOLD] = WorkCounters(3, 4000, 0.5)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics(server, work)
        for sample in family.samples
    }
    assert samples["threefs_storage_traffic_calls_total", "background"] == 1
    assert samples["threefs_storage_traffic_in_flight", "background"] == 1
    assert samples["threefs_storage_traffic_calls_total", "data"] == 0
    assert samples["threefs_storage_traffic_connections", "replication"] == 0
    assert samples["threefs_storage_background_pieces_total", "fold"] == 3
    assert samples["threefs_storage_background_bytes_total", "fold"] == 4000
    assert samples["threefs_storage_background_waited_seconds_total", "fold"] == 0.5
    assert samples["threefs_storage_background_pieces_total", "resync"] == 0
    assert samples["threefs_storage_held_answer_bytes",] == 4096
    assert samples["threefs_storage_held_answers_total", "announced"] == 7
    assert samples["threefs_storage_held_answers_total", "granted"] == 5
    assert samples["threefs_storage_lent_bytes",] == samples["threefs_storage_request_bytes",] == 0
