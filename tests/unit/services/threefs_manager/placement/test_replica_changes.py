"""Chains that gain and lose copies: each one as often as it must, disks as even as before."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from threefs_manager.placement.balance import balance
from threefs_manager.placement.chain_assignment import fill
from threefs_manager.placement.plan import Disk
from threefs_manager.placement.rebalance import plan_shifts
from threefs_manager.placement.replica_changes import LACKING, Removal, plan_removals, with_lacking

from tests.harness.shifted_chains import shifted
from threefs.ids import ChainId, NodeId

Chains = dict[ChainId, list[NodeId]]


def made(disks: int, replicas: int, targets: int, domains: int = 0) -> tuple[Chains, dict[NodeId, str]]:
    plan = [Disk(NodeId(n), f"host-{n % domains if domains else n}") for n in range(1, disks + 1)]
    domain_of = {disk.node_id: disk.domain for disk in plan}
    groups = balance(fill(plan, replicas, targets), domain_of)
    return {ChainId(n): group for n, group in enumerate(groups, 1)}, domain_of


def removed(chains: Chains, removals: list[Removal]) -> Chains:
    after = {chain: list(members) for chain, members in chains.items()}
    for removal in removals:
        after[removal.chain_id].remove(removal.source)
    return after


def added(chains: Chains, domain_of: dict[NodeId, str], replicas: int) -> Chains:
    domain_of = {**domain_of, LACKING: ""}
    lacking = with_lacking(chains, replicas)
    takers = [node for node in domain_of if node != LACKING]
    found = plan_shifts(lacking, domain_of, takers=takers, draining={LACKING}, level=False)
    assert {shift.source for shift in found} <= {LACKING}, "nothing else moves"
    return {chain: [n for n in members if n != LACKING] for chain, members in shifted(lacking, found).items()}


def spread(chains: Chains, nodes: list[NodeId]) -> int:
    load = Counter(node for members in chains.values() for node in members)
    return max(load[node] for node in nodes) - min(load[node] for node in nodes)


@given(st.integers(4, 9), st.integers(1, 4))
def test_from_one_copy_to_three_and_back_to_two(disks: int, targets: int) -> None:
    chains, domain_of = made(disks, 1, targets)
    for replicas in (2, 3):
        chains = added(chains, domain_of, 3)
        assert all(len(set(members)) == len(members) == replicas for members in chains.values())
        assert spread(chains, list(domain_of)) <= 1
    removals = plan_removals(chains, domain_of, 2, draining=(), broken={})
    assert [removal.chain_id for removal in removals] == sorted(chains), "each chain loses one"
    chains = removed(chains, removals)
    assert all(len(members) == 2 for members in chains.values())
    assert spread(chains, list(domain_of)) <= 1
    assert not plan_removals(chains, domain_of, 2, draining=(), broken={})


def test_new_copies_are_in_other_domains() -> None:
    chains, domain_of = made(6, 1, 3, domains=3)
    after = added(added(chains, domain_of, 3), domain_of, 3)
    assert all(len({domain_of[node] for node in members}) == 3 for members in after.values())


def test_what_does_not_serve_goes_first_then_what_drains_then_what_shares_a_domain() -> None:
    one, two, three, four = (NodeId(n) for n in (1, 2, 3, 4))
    chains = {ChainId(1): [one, two, three, four]}
    domain_of = {one: "a", two: "b", three: "b", four: "c"}

    def goes(draining: tuple[NodeId, ...], broken: tuple[NodeId, ...]) -> NodeId:
        found = plan_removals(chains, domain_of, 3, draining=draining, broken={ChainId(1): broken})
        return found[0].source

    assert goes((two,), (one,)) == one
    assert goes((two, four), ()) == four
    assert goes((), ()) == three


def test_chains_that_lack_nothing_stay() -> None:
    chains, domain_of = made(4, 3, 3)
    assert added(chains, domain_of, 3) == chains and with_lacking(chains, 3) == chains
