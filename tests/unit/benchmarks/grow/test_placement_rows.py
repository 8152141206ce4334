import pytest

from benchmarks.grow.large_plan import disks_of, place_tables
from benchmarks.grow.placement_rows import dead_disk_spread, partners
from benchmarks.grow.run_plan import FULL, SMALL
from threefs.ids import NodeId


def test_the_spread_is_that_of_the_worst_disk() -> None:
    groups = [[NodeId(node) for node in group] for group in ((1, 2), (1, 2), (1, 3), (2, 3))]
    # The reads of disk 1 fall twice on disk 2 and once on disk 3, and those of disk 2 likewise.
    assert dead_disk_spread(groups) == pytest.approx(2 / 1.5)


def test_the_search_spreads_the_reads_of_a_dead_disk_evenly() -> None:
    (groups,) = place_tables(disks_of(SMALL), 6)
    assert dead_disk_spread(groups) == 1.0


@pytest.mark.slow
def test_a_large_cluster_has_several_tables_with_other_partners_in_each() -> None:
    """One transaction does not store the twelve targets of each disk."""
    tables = place_tables(disks_of(FULL), FULL.targets_per_disk)
    assert [len(groups) * 3 // FULL.processes for groups in tables] == [1, 2, 2, 2, 2, 2, 1]
    whole = [group for groups in tables for group in groups]
    assert [dead_disk_spread(groups) for groups in (*tables, whole)] == [1.0] * 8
    assert {len(one) for one in partners(whole).values()} == {24}
