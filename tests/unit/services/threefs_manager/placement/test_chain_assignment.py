from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_manager.placement.chain_assignment import oversized_domains, place, target_id
from threefs_manager.placement.plan import Disk

from threefs.ids import NodeId, TargetId
from threefs.routing import Chain, PublicState, Target


def disks_in(domains: Iterable[str]) -> list[Disk]:
    return [Disk(NodeId(number), domain) for number, domain in enumerate(domains, start=1)]


def nodes_of(chains: Sequence[Chain], targets: Sequence[Target]) -> list[list[NodeId]]:
    holder = {target.target_id: target.node_id for target in targets}
    return [[holder[member.target_id] for member in chain.members] for chain in chains]


plans = st.tuples(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 6)
).filter(lambda plan: plan[1] <= len(plan[0]) and len(plan[0]) * plan[2] % plan[1] == 0)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(plans)
def test_properties_of_every_plan(plan: tuple[list[str], int, int]) -> None:
    domains, replicas, per_disk = plan
    disks = disks_in(domains)
    chains, targets = place(disks, replicas, per_disk)
    assert (chains, targets) == place(disks, replicas, per_disk), "the same plan gives the same chains"
    assert sorted(t.target_id for t in targets) == [
        target_id(disk.node_id, number) for disk in disks for number in range(1, per_disk + 1)
    ]
    assert [chain.chain_id for chain in chains] == list(range(1, len(disks) * per_disk // replicas + 1))
    chain_of = {target.target_id: target.chain_id for target in targets}
    domain_of = {disk.node_id: disk.domain for disk in disks}
    for chain, nodes in zip(chains, nodes_of(chains, targets), strict=True):
        assert chain.version == 1
        assert all(member.state is PublicState.SERVING for member in chain.members)
        assert all(chain_of[member.target_id] == chain.chain_id for member in chain.members)
        assert len(set(nodes)) == replicas, "never two targets of a chain on one node"
        if not oversized_domains(disks, replicas, per_disk):
            assert len({domain_of[node] for node in nodes}) == replicas, "nor in one domain while there are enough"


def test_domains_are_enough_exactly_when_none_is_crowded() -> None:
    assert oversized_domains(disks_in("aaabbc"), 2, 2) == []
    assert oversized_domains(disks_in("aaaabc"), 2, 2) == ["a"]
    assert oversized_domains(disks_in("aabb"), 3, 3) == ["a", "b"]


def test_two_hundred_disks_in_twenty_machines() -> None:
    disks = disks_in(f"machine-{number // 10}" for number in range(200))
    nodes = nodes_of(*place(disks, 3, 6))
    domain_of = {disk.node_id: disk.domain for disk in disks}
    assert all(len({domain_of[node] for node in group}) == 3 for group in nodes)
    assert max(Counter(pair for group in nodes for pair in combinations(sorted(group), 2)).values()) == 1
    assert set(Counter(group[0] for group in nodes).values()) == {2}, "every disk is the head of its share"
    assert set(Counter(group[-1] for group in nodes).values()) == {2}, "and the tail"


def test_the_load_of_a_dead_disk_falls_on_all_others_alike() -> None:
    nodes = nodes_of(*place(disks_in("abcdefg"), 3, 3))
    for dead in range(1, 8):
        others = Counter(node for group in nodes if dead in group for node in group if node != dead)
        assert set(others.values()) == {1} and len(others) == 6


def test_one_plan_is_written_down() -> None:
    """Placement is the same on every machine and with every version of Python; a change here is on purpose."""
    chains, _ = place(disks_in("abcd"), 2, 3)
    assert [tuple(member.target_id for member in chain.members) for chain in chains] == [
        (201, 301),
        (101, 202),
        (302, 102),
        (401, 103),
        (203, 402),
        (303, 403),
    ]


def test_target_ids_tell_the_node() -> None:
    assert target_id(12, 3) == TargetId(1203)
