from collections import Counter
from random import Random

import pytest

from benchmarks.scale import placements
from benchmarks.scale.model import Scenario

NODES, DISKS, REPLICAS, TARGETS = 12, 2, 3, 3


@pytest.mark.parametrize("placement", placements.PLACEMENTS)
def test_disks_are_used_alike_and_no_chain_has_a_node_twice(placement: str) -> None:
    made = placements.chains(placement, NODES, DISKS, REPLICAS, TARGETS, Random(3))
    assert len(made) == NODES * DISKS * TARGETS // REPLICAS
    assert set(Counter(disk for chain in made for disk in chain).values()) == {TARGETS}
    assert all(len({disk // DISKS for disk in chain}) == REPLICAS for chain in made)


def test_the_load_of_a_dead_node_goes_to_its_mates() -> None:
    """Three chains of three; when node 0 dies, disk 1 is alone with what two had in its second chain."""
    made: list[tuple[int, ...]] = [(0, 1, 2), (0, 1, 3), (1, 2, 3)]
    assert placements.load_of_a_dead_node(made, disks=1) == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 1)


def test_the_solver_spreads_the_load_of_a_dead_node_better_than_chance() -> None:
    loads = [
        placements.load_of_a_dead_node(placements.chains(name, NODES, DISKS, REPLICAS, TARGETS, Random(3)), DISKS)
        for name in placements.PLACEMENTS
    ]
    assert loads[0] < loads[1]


def test_the_solver_places_the_cluster_of_the_model() -> None:
    """It has more targets than one transaction of the manager stores."""
    whole = Scenario()
    made = placements.chains("solver", whole.nodes, whole.disks, whole.replicas, whole.targets_per_disk, Random(1))
    assert len(made) == whole.nodes * whole.disks * whole.targets_per_disk // whole.replicas
