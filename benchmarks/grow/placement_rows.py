"""A large cluster is placed by the manager's own search, and each of its disks dies in turn."""

import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.grow.large_plan import Groups, disks_of, place_tables
from benchmarks.grow.run_plan import Run
from benchmarks.measurements import Measurements
from threefs.ids import NodeId


def measure_placement(run: Run, found: Measurements) -> None:
    begin_s = time.monotonic()
    tables = _place(run)
    found.add_number("placement_s", time.monotonic() - begin_s)
    found.add_number("placed_disks", run.size.processes)
    found.add_number("placed_tables", len(tables))
    found.add_number("placed_targets", sum(len(group) for groups in tables for group in groups))


def measure_dead_disk(run: Run, found: Measurements) -> None:
    """Files lie in one table each: so the reads of each table have to be even, and those of all tables together."""
    tables = _place(run)
    whole = [group for groups in tables for group in groups]
    found.add_number("dead_disk_spread", max(dead_disk_spread(groups) for groups in (*tables, whole)))
    found.add_number("dead_disk_partners", min(map(len, partners(whole).values())))


def dead_disk_spread(groups: Sequence[Sequence[NodeId]]) -> float:
    """The greatest share of a dead disk's reads that one partner gets, over the mean of its partners: the worst of all
    disks. Each chain has equally many reads, and its living members share them."""
    return max(max(shares.values()) * len(shares) / shares.total() for shares in partners(groups).values())


def partners(groups: Sequence[Sequence[NodeId]]) -> dict[NodeId, Counter[NodeId]]:
    """How many chains each disk shares with which others."""
    found: dict[NodeId, Counter[NodeId]] = {}
    for group in groups:
        for one in group:
            found.setdefault(one, Counter()).update(set(group) - {one})
    return found


def _place(run: Run) -> list[Groups]:
    return place_tables(disks_of(run.size), run.size.targets_per_disk)
