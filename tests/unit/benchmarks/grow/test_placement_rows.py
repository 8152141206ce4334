import pytest
from threefs_manager.placement.chain_assignment import search_groups
from threefs_manager.placement.plan import Disk

from benchmarks.grow.placement_rows import dead_disk_spread
from threefs.ids import NodeId


def test_the_spread_is_that_of_the_worst_disk() -> None:
    groups = [[NodeId(node) for node in group] for group in ((1, 2), (1, 2), (1, 3), (2, 3))]
    # The reads of disk 1 fall twice on disk 2 and once on disk 3, and those of disk 2 likewise.
    assert dead_disk_spread(groups) == pytest.approx(2 / 1.5)


def test_the_search_spreads_the_reads_of_a_dead_disk_evenly() -> None:
    disks = [Disk(NodeId(number + 1), f"machine-{number // 4}") for number in range(48)]
    assert dead_disk_spread(search_groups(disks, 3, 6)) == 1.0
