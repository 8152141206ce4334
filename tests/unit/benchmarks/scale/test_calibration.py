import math
from pathlib import Path

import pytest

from benchmarks.scale import calibration


def test_the_costs_that_come_with_the_model_are_complete() -> None:
    costs = calibration.load()
    assert costs.disk_bytes_per_s > 0 and costs.storage_s(1 << 20) > costs.storage_s(0)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    costs = calibration.load()
    calibration.save(costs, tmp_path / "costs.json")
    assert calibration.load(tmp_path / "costs.json") == costs


def test_a_cost_that_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="disk_latency_s=nan"):
        calibration.Calibration(0, 0, 0, 0, math.nan, 0, 1)


def test_of_several_calibrations_the_least_costs_and_the_greatest_rate_count() -> None:
    one, other = calibration.Calibration(1, 9, 3, 4, 5, 6, 7), calibration.Calibration(2, 8, 3, 3, 9, 5, 70)
    assert calibration.best([one, other]) == calibration.Calibration(1, 8, 3, 3, 5, 5, 70)


def test_faster_hosts_need_less_time() -> None:
    found = calibration.Calibration(10, 20, 30, 40, 5, 6, 7).faster(10, 70)
    assert found == calibration.Calibration(1, 2, 3, 4, 5, 6, 70)


def test_costs_of_two_sizes_give_a_line() -> None:
    assert calibration.line(10, 12.0, 110, 32.0) == pytest.approx((10.0, 0.2))
    assert calibration.line(10, 12.0, 110, 11.0) == (12.0, 0.0), "a large read is never cheaper"


def test_the_spread_of_a_disk_comes_from_two_percentiles() -> None:
    percentile = {"50.000000": 2_000_000, "99.000000": 2_000_000 * math.exp(2.326 * 0.5)}
    report = {"jobs": [{"read": {"clat_ns": {"percentile": percentile}}}]}
    assert calibration.latency_spread(report) == pytest.approx((0.002, 0.5))
