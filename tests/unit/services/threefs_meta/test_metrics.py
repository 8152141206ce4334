from threefs_meta.metrics import metrics

from threefs.wire import meta_pb2 as pb


def test_every_figure_has_a_name_and_labels() -> None:
    found = pb.StatisticsReply(uptime_ms=1500, transactions=7, again={"Conflict": 2}, removals_waiting=3)
    found.calls.add(method="Stat", calls=4, names=5, refused=1, seconds=0.5)
    found.quotas.add(tree=12, limit_bytes=100, used_bytes=30)
    found.quotas.add(uid=1000, limit_inodes=5)
    samples = {
        (sample.name, *sample.labels.values()): sample.value for family in metrics(found) for sample in family.samples
    }
    assert samples["threefs_meta_uptime_seconds",] == 1.5
    assert samples["threefs_meta_calls_total", "Stat"] == 4
    assert samples["threefs_meta_calls_names_total", "Stat"] == 5
    assert samples["threefs_meta_calls_seconds_total", "Stat"] == 0.5
    assert samples["threefs_meta_transactions_total",] == 7
    assert samples["threefs_meta_transactions_again_total", "Conflict"] == 2
    assert samples["threefs_meta_removals_waiting",] == 3
    assert samples["threefs_meta_quota_used_bytes", "tree", "12"] == 30
    assert samples["threefs_meta_quota_limit_inodes", "user", "1000"] == 5


def test_what_waits_in_a_store_that_does_not_answer_is_not_said_to_be_nothing() -> None:
    found = pb.StatisticsReply(transactions=7)
    for answers in (True, False):
        samples = {one.name: one.value for family in metrics(found, store_answers=answers) for one in family.samples}
        assert samples["threefs_meta_store_answers"] == answers
        assert samples["threefs_meta_transactions_total"] == 7
        assert ("threefs_meta_removals_waiting" in samples) is answers
