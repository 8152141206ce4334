from threefs_storage.metrics import metrics
from threefs_storage.scheduling.background_scheduler import Work, WorkCounters

from threefs.rpc.traffic_class import TrafficClass
from threefs.rpc.traffic_counters import TrafficCounters


def test_every_class_and_kind_of_work_has_its_figures() -> None:
    traffic = {each: TrafficCounters() for each in TrafficClass}
    traffic[TrafficClass.BACKGROUND].begin_call(1.0)
    work = {each: WorkCounters() for each in Work}
    work[Work.FOLD] = WorkCounters(3, 4000, 0.5)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics(traffic, work)
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
