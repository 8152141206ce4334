"""The tables of a cluster as large as nobody has at hand: made one after the other, as an administrator makes them."""

from collections.abc import Sequence

from threefs_manager.placement.chain_assignment import group_disks
from threefs_manager.placement.plan import Disk, check_plan

from benchmarks.grow.run_plan import Size
from threefs.errors import InvalidArgument
from threefs.ids import NodeId

REPLICAS = 3

#: The disks of each chain of a table.
Groups = list[list[NodeId]]


def disks_of(size: Size) -> list[Disk]:
    return [Disk(NodeId(number + 1), f"machine-{number // size.disks}") for number in range(size.processes)]


def place_tables(disks: Sequence[Disk], targets_per_disk: int) -> list[Groups]:
    """As few tables as give each disk so many targets: the first is that of `init`."""
    tables: list[Groups] = []
    while left := targets_per_disk - sum(len(groups) for groups in tables) * REPLICAS // len(disks):
        others = [group for groups in tables for group in groups]
        tables.append(group_disks(disks, REPLICAS, _most(disks, left, new_nodes=0 if tables else len(disks)), others))
    return tables


def _most(disks: Sequence[Disk], wanted: int, *, new_nodes: int) -> int:
    """So many of the targets per disk can be stored at once."""
    for targets in range(wanted, 0, -1):
        try:
            check_plan(disks, REPLICAS, targets, new_nodes=new_nodes)
        except InvalidArgument:
            continue
        return targets
    raise InvalidArgument(f"no plan of {len(disks)} disks can be stored")
