import os
from pathlib import Path

import pytest
from threefs_bench.cost_meter import Round, Series, busy_s, busy_ticks, process_cpu_s, resident_bytes


def test_rates_and_costs_are_medians() -> None:
    series = Series([Round(1.0, 2.0, 10.0), Round(2.0, 2.0, 40.0), Round(1.0, 90.0, 900.0)])
    assert series.rate == 20.0
    assert series.cpu_per(100) == pytest.approx(10.0)


def test_a_round_measures_what_happens_in_it() -> None:
    series = Series()
    with series.round() as one:
        one.amount = sum(range(200_000)) and 5.0
    assert series.rounds == [one]
    assert one.seconds > 0 and one.cpu_s >= 0 and one.rate > 0


def test_idle_and_waiting_cores_are_not_busy(tmp_path: Path) -> None:
    assert busy_ticks(["10", "1", "5", "1000", "500", "2", "3", "4", "0", "0"]) == 25
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 9 9 0 0 0 0 0\ncpu0 1 2 3\n")
    assert busy_s(stat) > 0
    assert busy_s() > 0


def test_a_process_has_used_time_and_memory() -> None:
    before = process_cpu_s(os.getpid())
    block = bytearray(50 << 20)
    assert resident_bytes(os.getpid()) > len(block)
    while process_cpu_s(os.getpid()) == before:
        block.count(b"x")
