import json
import statistics

import numpy as np
import pytest
from threefs_bench.load.tally import LONGEST_NS, Latencies, Result, Spread, Tally

from threefs.errors import InvalidArgument


def test_moments_are_exact_and_percentiles_have_three_digits() -> None:
    values = np.random.default_rng(1).integers(1000, 10_000_000, 20_000).tolist()
    found = Latencies()
    for begin in range(0, len(values), 4096):
        found.add(values[begin : begin + 4096])
    assert (found.count, found.total_ns, found.min_ns, found.max_ns) == (20_000, sum(values), min(values), max(values))
    assert found.mean_ns == pytest.approx(statistics.mean(values))
    assert found.deviation_ns == pytest.approx(statistics.stdev(values))
    ordered = sorted(values)
    for at, value in found.percentiles((1, 50, 99, 99.9)).items():
        assert value == pytest.approx(ordered[int(at / 100 * len(ordered))], rel=2e-2)
    assert sum(found.bins().values()) == 20_000


def test_a_latency_may_be_any() -> None:
    found = Latencies()
    found.add([0, 1, 10**12])
    assert (found.min_ns, found.max_ns, found.count) == (0, 10**12, 3)
    assert sum(found.bins().values()) == 3 and max(found.bins()) <= LONGEST_NS
    empty = Latencies()
    empty.add([])
    assert empty.percentiles((50,)) == {50: 0} and empty.bins() == {} and empty.mean_ns == empty.deviation_ns == 0


def test_operations_of_one_call_have_its_latency() -> None:
    found = Latencies()
    found.add([5000], 256)
    assert found.count == 256 and found.total_ns == 5000 * 256 and found.deviation_ns == 0


def test_merged_latencies_are_those_of_all() -> None:
    one, other, both = Latencies(), Latencies(), Latencies()
    one.add([1000, 2000])
    other.add([500, 90_000_000])
    both.add([1000, 2000, 500, 90_000_000])
    one.merge(other)
    one.merge(Latencies())
    assert one.bins() == both.bins() and one.as_json() == both.as_json()


def test_what_begins_in_the_ramp_does_not_count() -> None:
    tally = Tally(begin_s=10.0)
    tally.add("read", 9.9, 10.5, 1, 4096)
    tally.short("read", 9.9)
    assert not tally.kinds
    tally.add("read", 10.0, 10.001, 1, 4096)
    tally.add("read", 10.0, 10.002, 4, 16384)
    tally.short("read", 10.0, 2)
    tally.settle()
    read = tally.kinds["read"]
    assert (read.operations, read.bytes, read.short, read.latencies.count) == (5, 20480, 2, 5)
    assert tally.done == 6 and tally.last_s == 10.002 and read.latencies.min_ns == pytest.approx(10**6, abs=2)


def result() -> Result:
    tally = Tally()
    for number in range(5000):
        tally.add("read", 1.0, 1.0 + number * 1e-6, 1, 4096)
    tally.add("sync", 1.0, 1.5, 1, 0)
    found = Result(runtime_ms=500.0, process_ms=500.0, user_s=0.25, switches=3)
    found.add_tally(tally)
    found.bandwidth["read"] = Spread()
    for rate in (100.0, 300.0):
        found.bandwidth["read"].add(rate)
    return found


def test_results_of_processes_are_added() -> None:
    one, other = result(), result()
    other.runtime_ms, other.errno, other.error = 700.0, 5, "broken"
    one.peak_bytes, other.peak_bytes = 30 << 20, 20 << 20
    one.merge(other)
    assert one.peak_bytes == 30 << 20, "it is that of one process"
    assert (one.operations, one.bytes, one.kinds["sync"].operations) == (10_000, 10_000 * 4096, 2)
    assert (one.runtime_ms, one.process_ms, one.user_s, one.switches) == (700.0, 1000.0, 0.5, 6)
    assert (one.errno, one.error) == (5, "broken")
    spread = one.bandwidth["read"]
    assert (spread.count, spread.mean, spread.least, spread.greatest) == (2, 400.0, 200.0, 600.0)
    assert spread.deviation == pytest.approx(2 * 141.42, rel=1e-3)


def test_a_result_comes_back_from_json() -> None:
    made = result()
    same = Result.from_json(json.loads(json.dumps(made.as_json())))
    assert same.as_json() == made.as_json()


def test_the_grants_of_all_processes_add_up() -> None:
    both = Result(grants={"granted": 3, "waited_s": 0.5})
    both.merge(Result(grants={"granted": 4, "overdrafts": 1}))
    both.merge(Result())
    assert both.grants == {"granted": 7, "waited_s": 0.5, "overdrafts": 1}


@pytest.mark.parametrize(
    "change",
    [{"kinds": 3}, {"kinds": {"read": {}}}, {"runtime_ms": "x"}, {"rates": {"a": {"b": 1}}}, {"grants": {"a": "b"}}],
)
def test_what_is_no_result_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="not the result of a job"):
        Result.from_json({**result().as_json(), **change})
    with pytest.raises(InvalidArgument):
        Result.from_json(None)


def test_a_bin_is_within_its_bounds() -> None:
    bad = result().as_json()
    bad["kinds"]["read"]["latencies"]["bins"] = [[-1, 2]]
    with pytest.raises(InvalidArgument):
        Result.from_json(bad)
