"""A large cluster is placed by the manager's own search, and each of its disks dies in turn."""

import time
from collections import Counter
from collections.abc import Sequence

from threefs_manager.placement.chain_assignment import search_groups
from threefs_manager.placement.plan import Disk

from benchmarks.grow.run_plan import Run, Size
from benchmarks.measurements import Measurements
from threefs.ids import NodeId

REPLICAS = 3


def measure_placement(run: Run, found: Measurements) -> None:
    begin_s = time.monotonic()
    groups = _place(run.size)
    found.add_number("placement_s", time.monotonic() - begin_s)
    found.add_number("placed_disks", run.size.processes)
    found.add_number("placed_targets", sum(map(len, groups)))


def measure_dead_disk(run: Run, found: Measurements) -> None:
    found.add_number("dead_disk_spread", dead_disk_spread(_place(run.size)))


def dead_disk_spread(groups: Sequence[Sequence[NodeId]]) -> float:
    """The greatest share of a dead disk's reads that one partner gets, over the mean of its partners: the worst of all
    disks. Each chain has equally many reads, and its living members share them."""
    taken: dict[NodeId, Counter[NodeId]] = {}
    for group in groups:
        for dead in group:
            taken.setdefault(dead, Counter()).update(set(group) - {dead})
    return max(max(shares.values()) * len(shares) / shares.total() for shares in taken.values())


def _place(size: Size) -> list[list[NodeId]]:
    disks = [Disk(NodeId(number + 1), f"machine-{number // size.disks}") for number in range(size.processes)]
    return search_groups(disks, REPLICAS, size.targets_per_disk)
