import pytest

from benchmarks.measurements import GIB, MIB, Load, Measurements, Sample

READ = Load("read", "reads", "compared")
LIMIT = Load("limit", "the limit", "")
NAMES = Load("names", "names", "", in_bytes=False)


def measured(*rounds: tuple[Load, float]) -> Measurements:
    """Each in a second."""
    found = Measurements()
    for load, amount in rounds:
        found.add(load, Sample(amount, 1.0, 0.5))
    return found


def test_rates_and_costs_are_medians_in_the_unit_of_the_load() -> None:
    found = measured((READ, 1 * MIB), (READ, 5 * MIB), (READ, 2 * MIB), (NAMES, 500))
    read, names = found.rows["read"], found.rows["names"]
    assert (read.rate, read.spread, names.rate, names.spread) == (2, 2, 500, 0)
    assert read.cpu == 0.5 / 2 * (GIB / MIB) and names.cpu == 1.0
    assert (read.load.unit, names.load.unit) == ("MiB/s", "1/s")


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    """The machine is half as fast in the second round."""
    found = measured((READ, 8), (LIMIT, 10), (READ, 4), (LIMIT, 5), (READ, 7), (LIMIT, 10))
    assert found.ratio("read", "limit") == pytest.approx(0.8)
    assert found.ratio("read", "limit", 3) == pytest.approx(2.4)
    assert found.ratio("read", "nothing") is None


def test_where_a_round_is_missing_the_ratio_is_that_of_the_medians() -> None:
    found = measured((READ, 8), (LIMIT, 10), (READ, 4))
    assert found.ratio("read", "limit") == pytest.approx(0.6)


def test_what_did_nothing_is_an_error() -> None:
    with pytest.raises(OSError, match=r"read: nothing was done in 1\.000 s"):
        measured((READ, 0))


def test_every_figure_has_a_name_of_its_own() -> None:
    found = measured((READ, 2 * MIB), (NAMES, 500))
    found.add_number("written_per_byte", 4.0)
    found.add_number("written_per_byte", 8.0)
    found.add_number("written_per_byte", 5.0)
    found.add_peak("peak_mib", 90.0)
    found.add_peak("peak_mib", 80.0)
    flat = found.flat()
    assert flat["read_mib_per_s"] == 2 and flat["names_per_s"] == 500
    assert flat["names_cpu_s_per_1000"] == 1.0 and "read_cpu_s_per_gib" in flat
    assert flat["written_per_byte"] == 5.0 and flat["peak_mib"] == 90.0
