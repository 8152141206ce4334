"""Plans of moves: as few as possible, equal shares, failure domains apart."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threefs_manager.placement.balance import balance
from threefs_manager.placement.chain_assignment import fill
from threefs_manager.placement.plan import Disk
from threefs_manager.placement.rebalance import Shift, plan_shifts, shares

from tests.harness.shifted_chains import shifted
from threefs.ids import ChainId, NodeId

Chains = dict[ChainId, list[NodeId]]


def made(disks: int, replicas: int, targets: int) -> tuple[Chains, dict[NodeId, str]]:
    plan = [Disk(NodeId(n), f"host-{n}") for n in range(1, disks + 1)]
    groups = balance(fill(plan, replicas, targets), {disk.node_id: disk.domain for disk in plan})
    return {ChainId(n): group for n, group in enumerate(groups, 1)}, {disk.node_id: disk.domain for disk in plan}


def apply(chains: Chains, shifts: Sequence[Shift]) -> Chains:
    after = shifted(chains, shifts)
    assert all(len(set(members)) == len(members) for members in after.values()), "replicas are on different disks"
    return after


def settle(
    chains: Chains, domains: Mapping[NodeId, str], draining: Collection[NodeId], *, level: bool
) -> tuple[Chains, int]:
    """Plan until nothing moves any more; the chains, and how many targets have moved."""
    moved = 0
    rounds = 0
    while shifts := plan_shifts(chains, domains, takers=domains, draining=draining, level=level):
        assert len({shift.chain_id for shift in shifts}) == len(shifts), "a chain moves one target at a time"
        rounds += 1
        assert rounds < 50, "plans come to an end"
        chains = apply(chains, shifts)
        moved += len(shifts)
    return chains, moved


def load(chains: Chains) -> Counter[NodeId]:
    return Counter(node for members in chains.values() for node in members)


def test_new_disks_get_their_share_and_nothing_else_moves() -> None:
    chains, domains = made(3, 3, 12)
    domains |= {NodeId(n): f"host-{n}" for n in (4, 5, 6)}
    after, moved = settle(chains, domains, (), level=True)
    assert set(load(after).values()) == {6} and moved == 18


def test_a_draining_disk_becomes_empty_and_only_its_targets_move() -> None:
    chains, domains = made(6, 3, 12)
    after, moved = settle(chains, domains, {NodeId(2)}, level=False)
    assert moved == 12 and NodeId(2) not in load(after)
    assert max(load(after).values()) - min(load(after).values()) <= 1


def test_what_drains_stays_in_its_domain_where_the_other_chains_of_it_have_no_other_one() -> None:
    """The other disk of the rack carries more than its share of all disks."""
    chains, domains = racks(3, 2, replicas=3, targets=12)
    after, moved = settle(chains, domains, {NodeId(4)}, level=False)
    assert moved == 12 and not in_one_domain(after, domains)


@pytest.mark.parametrize(("count", "replicas"), [(2, 2), (3, 3)])
def test_a_disk_more_in_one_of_equal_racks_brings_no_copies_together(count: int, replicas: int) -> None:
    """Equal shares of all disks would: the larger rack would have more targets than there are chains."""
    chains, domains = racks(count, 4, replicas=replicas, targets=10)
    domains[NodeId(99)] = "rack-1"
    after, _ = settle(chains, domains, (), level=True)
    assert not in_one_domain(after, domains)
    counts = {rack: [load(after)[node] for node in domains if domains[node] == rack] for rack in domains.values()}
    assert load(after)[NodeId(99)] == 8 and all(max(each) - min(each) <= 1 for each in counts.values())


def test_a_disk_added_beside_another_one_takes_half_of_what_that_one_has() -> None:
    """Three copies in three domains: nothing else may come to it."""
    chains, domains = made(3, 3, 4)
    domains[NodeId(4)] = domains[NodeId(1)]
    after, moved = settle(chains, domains, (), level=True)
    assert moved == 2 and load(after) == {1: 2, 2: 4, 3: 4, 4: 2}


def test_chains_with_two_targets_in_one_domain_are_parted_also_where_all_disks_have_their_share() -> None:
    domains = {NodeId(n): f"rack-{n % 2}" for n in range(1, 5)}
    chains = {ChainId(1): [NodeId(1), NodeId(3)], ChainId(2): [NodeId(2), NodeId(4)]}
    assert in_one_domain(chains, domains) == [1, 2]
    after, _ = settle(chains, domains, (), level=True)
    assert not in_one_domain(after, domains) and set(load(after).values()) == {1}


def test_a_new_disk_parts_first_the_chains_with_two_targets_in_one_domain() -> None:
    domains = {NodeId(1): "a", NodeId(2): "a", NodeId(3): "b", NodeId(4): "c"}
    chains = {ChainId(1): [NodeId(1), NodeId(3)], ChainId(2): [NodeId(1), NodeId(2)]}
    shifts = plan_shifts(chains, domains, takers=list(domains), draining=(), level=True)
    assert shifts == [Shift(ChainId(2), NodeId(1), NodeId(4))]


def test_of_disks_with_equally_many_targets_one_gives_that_can() -> None:
    """Disk 6 was to give one, and all its chains have a target in the domain of disk 5: nothing moved."""
    domains = {NodeId(n): domain for n, domain in {1: "b", 3: "d", 4: "a", 5: "b", 6: "d", 7: "b"}.items()}
    pairs = [(3, 1), (5, 3), (4, 3), (7, 4), (6, 5), (6, 1), (4, 1), (1, 6), (6, 7), (4, 7)]
    chains = {ChainId(n): [NodeId(one), NodeId(other)] for n, (one, other) in enumerate(pairs)}
    assert load(chains) == {1: 4, 3: 3, 4: 4, 5: 2, 6: 4, 7: 3}
    after, moved = settle(chains, domains, (), level=True)
    assert moved == 1 and max(load(after).values()) - min(load(after).values()) == 1
    assert not in_one_domain(after, domains)


def racks(count: int, disks: int, *, replicas: int, targets: int) -> tuple[Chains, dict[NodeId, str]]:
    """So many racks of so many disks, and chains that have one target in each."""
    domains = {NodeId(n): f"rack-{n % count}" for n in range(1, count * disks + 1)}
    plan = [Disk(node, domain) for node, domain in domains.items()]
    chains = {ChainId(n): group for n, group in enumerate(balance(fill(plan, replicas, targets), domains), 1)}
    assert not in_one_domain(chains, domains)
    return chains, domains


def in_one_domain(chains: Chains, domains: Mapping[NodeId, str]) -> list[ChainId]:
    return [c for c, members in chains.items() if len({domains[node] for node in members}) < len(members)]


def test_too_few_disks_for_the_replicas_move_nothing() -> None:
    chains, domains = made(3, 3, 4)
    assert plan_shifts(chains, domains, takers=domains, draining={NodeId(1)}, level=False) == []


def test_a_disk_that_can_take_nothing_gets_nothing() -> None:
    chains, domains = made(3, 2, 4)
    domains |= {NodeId(4): "host-4", NodeId(5): "host-5"}
    shifts = plan_shifts(chains, domains, takers=[NodeId(n) for n in (1, 2, 3, 5)], draining=(), level=True)
    assert shifts and {shift.destination for shift in shifts} == {NodeId(5)}


def test_failure_domains_stay_apart_where_they_can() -> None:
    chains, domains = made(4, 2, 6)
    domains |= {NodeId(5): "host-1", NodeId(6): "host-2"}
    after, _ = settle(chains, domains, (), level=True)
    assert all(len({domains[node] for node in members}) == 2 for members in after.values())


@given(st.integers(3, 8), st.integers(1, 3), st.integers(1, 6), st.integers(0, 4), st.data())
def test_any_cluster_becomes_even_with_few_moves(
    disks: int, replicas: int, targets: int, added: int, data: st.DataObject
) -> None:
    targets *= replicas  # any number of disks then has a plan
    chains, domains = made(disks, replicas, targets)
    domains |= {NodeId(n): f"host-{n}" for n in range(disks + 1, disks + added + 1)}
    most = len(domains) - replicas
    draining = data.draw(st.sets(st.sampled_from(sorted(domains)), max_size=max(0, most)))
    after, moved = settle(chains, domains, draining, level=True)
    staying = [node for node in domains if node not in draining]
    held, final = load(chains), load(after)
    counts = [final[node] for node in staying]
    total = sum(held.values())
    assert not set(final) & draining and max(counts) - min(counts) <= 1
    each, rest = divmod(total, len(staying))
    fullest = sorted((held[node] for node in staying), reverse=True)
    least = sum(max(0, have - each - (place < rest)) for place, have in enumerate(fullest))
    least += sum(held[node] for node in draining)
    assert least <= moved <= 2 * least  # chains whose disks are all full make a target move twice


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Chains, dict[NodeId, str]]:
    """Chains of any disks, in any domains: also several of one chain in one, and too few domains."""
    nodes = [NodeId(n) for n in range(1, draw(st.integers(2, 7)) + 1)]
    domains = {node: draw(st.sampled_from("abcd")) for node in nodes}
    members = st.lists(st.sampled_from(nodes), min_size=1, max_size=min(3, len(nodes)), unique=True)
    return {ChainId(n): draw(members) for n in range(1, draw(st.integers(1, 12)) + 1)}, domains


def near(members: Collection[NodeId], domains: Mapping[NodeId, str]) -> int:
    """How many targets of a chain share a domain with another one before them."""
    return len(members) - len({domains[node] for node in members})


@given(crowds(), st.booleans(), st.data())
def test_no_shift_brings_copies_together_while_a_disk_apart_has_room(
    cluster: tuple[Chains, dict[NodeId, str]], level: bool, data: st.DataObject
) -> None:
    """Also plans come to an end: none makes what another one undoes."""
    chains, domains = cluster
    draining = data.draw(st.sets(st.sampled_from(sorted(domains))))
    takers = data.draw(st.sets(st.sampled_from(sorted(domains)))) - draining
    small = data.draw(st.sets(st.tuples(st.sampled_from(sorted(chains)), st.sampled_from(sorted(domains)))))

    def disks_apart(chain_id: ChainId, members: Collection[NodeId]) -> list[NodeId]:
        """Those that could take a target of the chain, in a domain where these are not."""
        occupied = {domains[node] for node in members}
        return [n for n in sorted(takers) if domains[n] not in occupied and (chain_id, n) not in small]

    seen: list[Chains] = []
    while shifts := plan_shifts(
        chains,
        domains,
        takers=takers,
        draining=draining,
        level=level,
        has_room=lambda chain_id, node: (chain_id, node) not in small,
    ):
        assert chains not in seen, "plans come to an end"
        seen.append(chains)
        after = apply(chains, shifts)
        for shift in shifts:
            members = chains[shift.chain_id]
            if shared(after[shift.chain_id], domains) > shared(members, domains):
                assert shift.source in draining
                assert not disks_apart(shift.chain_id, [node for node in members if node != shift.source])
        chains = after
    for chain_id in in_one_domain(chains, domains) if level else ():
        members = chains[chain_id]
        close = [n for n in members if shared([m for m in members if m != n], domains) < shared(members, domains)]
        assert not disks_apart(chain_id, members) or takers.isdisjoint(close), "a rebalance parts what it can"


def shared(members: Collection[NodeId], domains: Mapping[NodeId, str]) -> int:
    """How many targets of a chain are in the domain of another one before them."""
    return len(members) - len({domains[node] for node in members})


def test_a_disk_that_carries_one_more_has_few_targets_of_other_tables() -> None:
    nodes = [NodeId(n) for n in (1, 2, 3)]
    held = dict.fromkeys(nodes, 1)
    assert shares(held, nodes, 4, {}) == {1: 2, 2: 1, 3: 1}
    assert shares(held, nodes, 4, {NodeId(1): 5, NodeId(2): 4, NodeId(3): 4}) == {1: 1, 2: 2, 3: 1}


def least_moves(highspy: ModuleType, chains: Chains, staying: Collection[NodeId]) -> int:
    """The least number of targets that move until the disks that stay have equally many, by a solver of integer
    programs: one variable says whether a chain has a copy on a disk."""
    solver = highspy.Highs()
    solver.silent()
    has = {(chain, node): solver.addBinary() for chain in chains for node in staying}
    for chain, members in chains.items():
        solver.addConstr(solver.qsum(has[chain, node] for node in staying) == len(members))
    each, rest = divmod(sum(map(len, chains.values())), len(staying))
    for node in staying:
        solver.addConstr(solver.qsum(has[chain, node] for chain in chains) >= each)
        solver.addConstr(solver.qsum(has[chain, node] for chain in chains) <= each + (rest > 0))
    solver.minimize(solver.qsum(has[chain, node] for chain, node in has if node not in chains[chain]))
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    least: int = round(solver.getObjectiveValue())
    return least


@pytest.mark.slow
def test_no_solver_finds_a_plan_with_one_percent_fewer_moves() -> None:
    highspy = pytest.importorskip("highspy", reason="highspy is not installed (the extra `dev` has it)")
    dice = Random(1)
    moved_in_all = least_in_all = 0
    for _ in range(60):
        disks, replicas, added = dice.randint(3, 8), dice.randint(1, 3), dice.randint(0, 4)
        chains, domains = made(disks, replicas, replicas * dice.randint(1, 6))
        domains |= {NodeId(n): f"host-{n}" for n in range(disks + 1, disks + added + 1)}
        draining = set(dice.sample(sorted(domains), dice.randint(0, len(domains) - max(replicas, 1))))
        _, moved = settle(chains, domains, draining, level=True)
        least = least_moves(highspy, chains, set(domains) - draining)
        assert least <= moved <= least + 1, f"{disks} disks, {added} added, {draining} drain"
        moved_in_all += moved
        least_in_all += least
    assert least_in_all > 500 and moved_in_all <= 1.01 * least_in_all
