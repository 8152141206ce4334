from hypothesis import given
from hypothesis import strategies as st

from threefs.telemetry.histogram import Histogram, family


def test_a_bucket_counts_what_is_not_above_its_bound() -> None:
    histogram = Histogram()
    for seconds in (0.001, 0.0011, 3.0, 1000.0):
        histogram.observe(seconds)
    buckets = dict(histogram.buckets())
    assert (buckets["0.0005"], buckets["0.001"], buckets["0.0025"]) == (0, 1, 2)
    assert (buckets["2.5"], buckets["5.0"], buckets["10.0"], buckets["+Inf"]) == (2, 3, 3, 4)


@given(st.lists(st.floats(0, 100)))
def test_buckets_only_rise_and_the_last_counts_all(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    counts = [count for _, count in histogram.buckets()]
    assert counts == sorted(counts) and counts[-1] == histogram.count == len(durations)
    for bound, count in histogram.buckets():
        assert count == sum(seconds <= float(bound) for seconds in durations)
    assert histogram.total_s == sum(durations)


def test_a_family_has_a_histogram_for_each_value_of_its_labels() -> None:
    reads, writes = Histogram(), Histogram()
    reads.observe(0.002)
    found = family("threefs_x_seconds", "Of a test.", ["method"], [(["Read"], reads), (["Write"], writes)])
    samples = {(sample.name, *sample.labels.values()): sample.value for sample in found.samples}
    assert samples["threefs_x_seconds_count", "Read"] == 1 and samples["threefs_x_seconds_sum", "Read"] == 0.002
    assert samples["threefs_x_seconds_bucket", "Write", "+Inf"] == 0
