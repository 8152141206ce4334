from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threefs_manager.placement.balance import balance, choose_evenly

from threefs.ids import NodeId


def meetings(groups: Sequence[Sequence[int]]) -> Counter[frozenset[int]]:
    return Counter(frozenset(pair) for group in groups for pair in combinations(group, 2))


def dealt(disks: int, size: int, times: int) -> list[list[NodeId]]:
    """Uneven on purpose: disks that lie together stay together."""
    count = disks * times // size
    groups: list[list[NodeId]] = [[] for _ in range(count)]
    for row in range(disks * times):
        groups[row % count].append(NodeId(row // times + 1))
    return groups


@pytest.mark.parametrize(
    ("disks", "size", "times", "shared"),
    [(7, 3, 3, 1), (13, 4, 4, 1), (9, 3, 4, 1), (15, 3, 7, 1), (6, 3, 10, 4), (21, 5, 5, 1), (3, 3, 5, 5)],
)
def test_balanced_block_designs_are_found(disks: int, size: int, times: int, shared: int) -> None:
    exclusive = {NodeId(n): str(n) for n in range(1, disks + 1)}
    found = meetings(balance(dealt(disks, size, times), exclusive))
    assert set(found.values()) == {shared} and len(found) == disks * (disks - 1) // 2


def test_a_pair_of_one_domain_is_kept_only_where_it_must_be() -> None:
    one_domain = {NodeId(1): "a", NodeId(2): "a", NodeId(3): "b", NodeId(4): "b"}
    apart = balance([[NodeId(1), NodeId(2)], [NodeId(3), NodeId(4)]], one_domain)
    assert frozenset((1, 2)) not in meetings(apart) and frozenset((3, 4)) not in meetings(apart)
    oversized_domains = {NodeId(1): "a", NodeId(2): "a", NodeId(3): "a", NodeId(4): "b"}
    start = [[NodeId(1), NodeId(2)], [NodeId(3), NodeId(4)]]
    inside = sum(4 not in pair for pair in meetings(balance(start, oversized_domains)))
    assert inside == 1


def test_a_further_table_is_as_even_and_brings_other_disks_together() -> None:
    """Else the reads of a dead disk of a cluster with many tables would fall on the same few disks in each."""
    exclusive = {NodeId(n): str(n) for n in range(1, 49)}
    tables: list[list[list[NodeId]]] = []
    for _ in range(6):
        tables.append(balance(dealt(48, 3, 2), exclusive, [group for groups in tables for group in groups]))
        assert set(meetings(tables[-1]).values()) == {1}
    assert set(meetings([group for groups in tables for group in groups]).values()) == {1}


def test_evenness_within_a_table_comes_first() -> None:
    exclusive = {NodeId(n): str(n) for n in range(1, 8)}
    old = [[NodeId(1), NodeId(2), NodeId(3)]] * 9
    found = meetings(balance(dealt(7, 3, 3), exclusive, old))
    assert set(found.values()) == {1} and len(found) == 21


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(1, 6))
def test_disks_and_sizes_stay_and_nothing_gets_worse(disks: int, size: int, times: int) -> None:
    if size > disks or disks * times % size:
        return
    start = dealt(disks, size, times)
    domains = {NodeId(n): str(n % 4) for n in range(1, disks + 1)}
    found = balance(start, domains)
    assert [len(group) for group in found] == [size] * len(start)
    assert all(len(set(group)) == size for group in found)
    assert Counter(n for g in found for n in g) == Counter(n for g in start for n in g)

    def inside(groups: Sequence[Sequence[NodeId]]) -> int:
        return sum(domains[a] == domains[b] for group in groups for a, b in combinations(group, 2))

    assert inside(found) <= inside(start)
    assert balance(start, domains) == found, "the same every time"


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 10), st.integers(1, 5), st.integers(1, 6))
def test_no_disk_is_chosen_oftener_than_it_must_be(disks: int, size: int, times: int) -> None:
    if size > disks or disks * times % size:
        return
    groups = dealt(disks, size, times)
    chosen = choose_evenly(groups)
    assert all(node in group for node, group in zip(chosen, groups, strict=True))
    assert max(Counter(chosen).values()) <= -(-times // size)


def test_a_choice_that_blocks_a_later_group_is_changed() -> None:
    groups = [[NodeId(1), NodeId(2)], [NodeId(1), NodeId(3)], [NodeId(3), NodeId(2)], [NodeId(1), NodeId(4)]]
    chosen = choose_evenly([*groups, [NodeId(4), NodeId(2)], [NodeId(3), NodeId(4)]])
    assert max(Counter(chosen).values()) == 2 and len(chosen) == 6
