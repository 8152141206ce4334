from threefs_meta.statistics import Calls, Rates, Statistics

from threefs.errors import Conflict, NotFound
from threefs.kv.engine_api import TransactionCounts


def test_answers_and_failures_are_counted_apart() -> None:
    calls = Calls()
    calls.record_error(NotFound())
    calls.record_error(Conflict())
    calls.record(5, 0.25)
    assert calls == Calls(calls=1, names=5, refused=1, failed=1, seconds=0.25)


def test_rates_are_those_of_the_last_minute() -> None:
    figures, transaction_counts = Statistics(), TransactionCounts()
    assert figures.rates(0.0, transaction_counts) == Rates(0.0, 0.0, 0.0)
    for at in range(0, 200, 10):
        figures.sample(float(at), transaction_counts)
        figures.of("Stat").record(30 if at < 100 else 50, 0.1)
        transaction_counts.committed += 20
        transaction_counts.retried["Conflict"] += 10
    assert figures.rates(200.0, transaction_counts) == Rates(5.0, 2.0, 1.0)
