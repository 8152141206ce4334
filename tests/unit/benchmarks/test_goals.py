import pytest

from benchmarks import goals
from benchmarks.measurements import Load, Measurements, Sample
from benchmarks.peer_rows import LOCAL, THREEFS, row_name


def on_mounts(rates: dict[str, dict[str, float]]) -> Measurements:
    found = Measurements()
    for system, loads in rates.items():
        for load, rate in loads.items():
            found.add(Load(row_name(system, load), load, "", in_bytes=False), Sample(rate, 1.0, 0.1))
    return found


def test_keys_are_unique() -> None:
    keys = [goal.key for goal in goals.GOALS]
    assert len(keys) == len(set(keys))


def test_threefs_is_compared_with_the_best_of_the_others() -> None:
    """The local disk is no other system. `rand_read_4k_j1` does not end the name of `rand_read_4k_j16`."""
    rates = {THREEFS: 30.0, LOCAL: 1000.0, "one": 10.0, "other": 20.0}
    found = on_mounts({system: {"rand_read_4k_j16": rate, "seq_read_1m_cold": rate} for system, rate in rates.items()})
    values = goals.values(found)
    assert values["rand_read_4k_j16_over_best_peer"] == 1.5
    assert values["seq_read_cold_over_local_disk"] == pytest.approx(0.03)
    assert "rand_read_4k_j1_over_best_peer" not in values


def test_of_two_loads_the_worse_one_counts() -> None:
    loads = {"small_write_4k_p1": 10.0, "small_write_4k_p4": 20.0}
    found = on_mounts({THREEFS: loads, "one": {"small_write_4k_p1": 5.0, "small_write_4k_p4": 40.0}})
    assert goals.values(found)["small_write_over_best_peer"] == 0.5
    lacking = on_mounts({THREEFS: loads, "one": {"small_write_4k_p1": 5.0}})
    assert "small_write_over_best_peer" not in goals.values(lacking)


def test_a_goal_is_a_least_or_a_most() -> None:
    by_key = {goal.key: goal for goal in goals.GOALS}
    least, most = by_key["write_1m_over_fio"], by_key["write_1m_cpu_s_per_gib"]
    none = by_key["read_1m_over_work_equal_tcp_c"]
    assert [least.reached(0.8), least.reached(0.79), most.reached(2.5), most.reached(2.6), none.reached(0.1)] == [
        True,
        False,
        True,
        False,
        None,
    ]


def test_figures_of_other_programs_are_judged() -> None:
    found = Measurements()
    found.add_number("incast_goodput_over_line", 0.91)
    found.add_number("alone_cost_in_cpu", 0.03)
    values, by_key = goals.values(found), {goal.key: goal for goal in goals.GOALS}
    assert by_key["incast_goodput_over_line"].reached(values["incast_goodput_over_line"])
    assert not by_key["alone_cost_in_cpu"].reached(values["alone_cost_in_cpu"])


def test_all_copies_of_a_write_count() -> None:
    found = Measurements()
    for name, rate in (("write_1m", 2.0), ("fio_write_1m", 10.0)):
        found.add(Load(name, name, ""), Sample(rate, 1.0, 1.0))
    assert goals.values(found)["write_1m_over_fio"] == pytest.approx(0.6)
