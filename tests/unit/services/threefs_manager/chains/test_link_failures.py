"""Of two neighbours in a chain that cannot reach each other one gives way, and returns where its link works."""

import random
from collections.abc import Iterator

import pytest
from threefs_manager.chains.link_failures import LinkFailures
from threefs_manager.chains.transitions import next_chain

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, Node, NodeKind, PublicState, Routing, Target

T = 10.0
SERVING, SYNCING, WAITING, OFFLINE = PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING, PublicState.OFFLINE
UPTODATE, ONLINE, DEAD = LocalState.UPTODATE, LocalState.ONLINE, LocalState.OFFLINE


def target_of(node: int) -> TargetId:
    return TargetId(node * 100 + 1)


class Bench:
    """One chain with a target on each of some nodes; which of them live, and which reach each other."""

    def __init__(self, states: dict[int, PublicState], minimum: int = 1) -> None:
        self.clock = SteppedClock()
        self.links = LinkFailures(self.clock)
        self.minimum = minimum
        self.reported: dict[tuple[int, int], float] = {}  # links that do not work, and since when
        self.dead: set[int] = set()
        self.chain = Chain(ChainId(1), 1, tuple(ChainMember(target_of(n), state) for n, state in states.items()))

    def break_link(self, node: int, peer: int) -> None:
        self.reported[node, peer] = self.clock.monotonic()

    def mend(self, node: int, peer: int) -> None:
        del self.reported[node, peer]

    def look(self) -> int | None:
        """The node whose target has to give way."""
        targets = {m.target_id: Target(m.target_id, NodeId(m.target_id // 100), ChainId(1)) for m in self.chain.members}
        nodes = {t.node_id: Node(t.node_id, NodeKind.STORAGE, "", "h:1", 7) for t in targets.values()}
        tables = {TableId(1): (ChainId(1),)}
        routing = Routing(
            1, "c", nodes, targets, {ChainId(1): self.chain}, tables, int(T * 1000), {TableId(1): self.minimum}
        )
        reports: dict[NodeId, dict[NodeId, float]] = {}
        for (node, peer), since in self.reported.items():
            if not {node, peer} & self.dead:
                reports.setdefault(NodeId(node), {})[NodeId(peer)] = self.clock.monotonic() - since
        self.links.update(routing, reports)
        self.held = {target // 100 for target in self.links.held_targets(self.chain)}
        removed = self.links.target_to_remove(self.chain, self.observed())
        return removed // 100 if removed is not None else None

    def observed(self, lost: int | None = None) -> dict[TargetId, LocalState | None]:
        observed: dict[TargetId, LocalState | None] = {}
        for member in self.chain.members:
            node = member.target_id // 100
            observed[member.target_id] = UPTODATE if member.state is SERVING else ONLINE
            if node in self.held:
                observed[member.target_id] = None
            if node in self.dead or node == lost:
                observed[member.target_id] = DEAD
        return observed

    def step(self, lost: int | None = None) -> None:
        """The manager applies its table; the lease of the target of `lost` has ended."""
        before = self.chain
        self.chain = next_chain(before, self.observed(lost))
        if self.chain is not before:
            self.links.on_change(before, self.chain)

    def states(self) -> dict[int, PublicState]:
        return {member.target_id // 100: member.state for member in self.chain.members}

    def put_out(self, node: int) -> None:
        assert self.look() == node
        self.step(lost=node)
        assert self.states()[node] is OFFLINE
        self.look()


def three() -> Bench:
    return Bench({1: SERVING, 2: SERVING, 3: SERVING}, minimum=2)


def test_it_gives_way_when_the_report_has_stood_for_t() -> None:
    bench = three()
    assert bench.look() is None
    bench.break_link(1, 2)
    assert bench.look() is None
    bench.clock.advance(T - 0.1)
    assert bench.look() is None, "a link that fails for a moment changes nothing"
    bench.clock.advance(0.2)
    assert bench.look() == 2
    bench.mend(1, 2)
    assert bench.look() is None, "while it still holds its lease it may stay"


def test_only_neighbours_matter() -> None:
    bench = three()
    bench.break_link(1, 3)
    bench.clock.advance(2 * T)
    assert bench.look() is None


def test_a_dead_peer_is_no_failed_link() -> None:
    bench = three()
    bench.break_link(1, 2)
    bench.dead.add(2)
    bench.clock.advance(2 * T)
    assert bench.look() is None


def test_it_returns_at_once_behind_another_one() -> None:
    bench = three()
    bench.break_link(1, 2)
    bench.clock.advance(T)
    bench.put_out(2)
    assert bench.states() == {1: SERVING, 3: SERVING, 2: OFFLINE} and not bench.held
    bench.step()
    assert bench.states() == {1: SERVING, 3: SERVING, 2: SYNCING}


def test_it_stays_out_while_the_tail_cannot_reach_it() -> None:
    bench = three()
    bench.break_link(2, 3)
    bench.clock.advance(T)
    bench.put_out(3)
    for _ in range(5):
        bench.clock.advance(10 * T)
        bench.look()
        bench.step()
        assert bench.held == {3} and bench.states() == {1: SERVING, 2: SERVING, 3: OFFLINE}
    assert "target 201 cannot reach it" in bench.links.reasons()[target_of(3)]
    bench.mend(2, 3)
    bench.look()
    bench.step()
    assert bench.states()[3] is SYNCING, "the hold-off has ended long ago"


def test_it_stays_out_while_it_cannot_reach_the_tail() -> None:
    bench = Bench({1: SERVING, 2: SERVING, 3: WAITING}, minimum=2)
    bench.break_link(3, 2)
    bench.look()
    assert bench.held == {3}


def hold_off_s(bench: Bench) -> float:
    """How long the target of node 3 stays out, although the link works again."""
    bench.break_link(2, 3)
    bench.clock.advance(T)
    bench.put_out(3)
    bench.mend(2, 3)
    out_since = bench.clock.monotonic()
    while True:
        bench.look()
        bench.step()
        if bench.states()[3] is SYNCING:
            break
        assert "returns in" in bench.links.reasons()[target_of(3)]
        bench.clock.advance(T / 2)
    held_s = bench.clock.monotonic() - out_since
    bench.chain = Chain(ChainId(1), bench.chain.version, tuple(ChainMember(target_of(n), SERVING) for n in (1, 2, 3)))
    bench.look()
    assert target_of(3) not in bench.links.reasons()
    return held_s


def test_the_hold_off_doubles_with_each_failure_and_has_a_bound() -> None:
    bench = three()
    assert [hold_off_s(bench) for _ in range(7)] == [T, 2 * T, 4 * T, 8 * T, 16 * T, 30 * T, 30 * T]
    assert bench.links.removals == 7
    bench.clock.advance(29 * T)
    bench.look()
    assert hold_off_s(bench) > T, "it has not worked for long enough since the last hold-off"
    bench.clock.advance(31 * T)
    bench.look()
    assert hold_off_s(bench) == T, "a link that has worked for long begins anew"


def test_one_failure_that_strikes_several_chains_counts_once() -> None:
    bench = three()
    bench.break_link(2, 3)
    bench.clock.advance(T)
    for chain in (1, 2, 3):
        bench.chain = Chain(ChainId(chain), 1, tuple(ChainMember(target_of(n), SERVING) for n in (1, 2, 3)))
        bench.put_out(3)
    assert bench.links.hold_off_left_s == T


@pytest.mark.parametrize("minimum", [2, 3])
def test_a_chain_keeps_what_its_writes_need(minimum: int) -> None:
    bench = Bench({1: SERVING, 2: SERVING, 3: SERVING}, minimum)
    if minimum == 2:
        bench.dead.add(3)
    bench.break_link(1, 2)
    bench.clock.advance(2 * T)
    assert bench.look() is None


def test_the_last_one_is_never_put_out() -> None:
    bench = Bench({1: SERVING, 2: SERVING})
    bench.break_link(1, 2)
    bench.clock.advance(T)
    bench.put_out(2)
    bench.clock.advance(T)
    bench.break_link(2, 1)
    bench.clock.advance(T)
    assert bench.look() is None and bench.states() == {1: SERVING, 2: OFFLINE}


def test_a_syncing_target_gives_way_whatever_writes_need() -> None:
    bench = Bench({1: SERVING, 2: SYNCING, 3: WAITING}, minimum=2)
    bench.break_link(1, 2)
    bench.clock.advance(T)
    bench.put_out(2)
    bench.step()
    assert bench.states() == {1: SERVING, 3: SYNCING, 2: OFFLINE}


def test_a_node_that_cannot_reach_several_others_gives_way_itself() -> None:
    bench = three()
    bench.break_link(1, 2)
    bench.break_link(1, 3)
    bench.clock.advance(T)
    bench.put_out(1)
    assert bench.states() == {2: SERVING, 3: SERVING, 1: OFFLINE}


def test_a_node_that_reports_one_peer_after_the_other_gives_way_itself() -> None:
    """A node that lies, or is ill, empties no chain."""
    bench = three()
    bench.break_link(1, 2)
    bench.clock.advance(T)
    bench.put_out(2)
    bench.step()
    bench.chain = Chain(ChainId(1), 9, tuple(ChainMember(target_of(n), SERVING) for n in (1, 3, 2)))
    bench.mend(1, 2)
    bench.break_link(1, 3)
    bench.clock.advance(T)
    bench.put_out(1)
    assert bench.states() == {3: SERVING, 2: SERVING, 1: OFFLINE}


def test_a_node_that_no_other_reaches_gives_way() -> None:
    bench = Bench({1: SERVING, 2: SERVING, 3: SERVING}, minimum=2)
    for node in (1, 3):
        bench.break_link(node, 2)
    bench.break_link(2, 3)
    bench.clock.advance(T)
    bench.put_out(2)


def test_the_neighbours_that_remain_reach_each_other() -> None:
    """Between two racks the links fail: 1 | 2 and 3."""
    bench = three()
    bench.break_link(1, 2)
    bench.break_link(3, 1)
    bench.clock.advance(T)
    assert bench.look() == 1, "without 2 there would be no link between 1 and 3 either"


def test_a_decision_stands_until_the_chain_has_changed() -> None:
    """While its lease has ended and others are not heard of yet, nothing else is decided."""
    bench = three()
    bench.break_link(1, 2)
    bench.clock.advance(T)
    assert bench.look() == 2
    observed: dict[TargetId, LocalState | None] = {target_of(1): None, target_of(2): DEAD, target_of(3): None}
    assert bench.links.target_to_remove(bench.chain, observed) == target_of(2)
    assert "about to be put out" in bench.links.reasons()[target_of(2)]


def _lies(bench: Bench, dice: random.Random, plan: str, nodes: int) -> Iterator[None]:
    """Node 1 reports links that work, another one at each step as it pleases."""
    turn = 0
    while True:
        told = list(bench.reported)
        if plan == "any" and dice.random() < 0.3:
            peer = dice.randrange(2, nodes + 1)
            (bench.mend if (1, peer) in bench.reported else bench.break_link)(1, peer)
        elif plan == "one after the other" and not turn % dice.choice([5, 6, 9]):
            for link in told:
                bench.mend(*link)
            bench.break_link(1, 2 + turn % (nodes - 1))
        elif plan == "its successor":
            written = [node for node, state in bench.states().items() if state in (SERVING, SYNCING)]
            behind = written[written.index(1) + 1 :][:1] if 1 in written else []
            for link in [link for link in told if link[1] not in behind]:
                bench.mend(*link)
            for peer in [peer for peer in behind if (1, peer) not in bench.reported]:
                bench.break_link(1, peer)
        turn += 1
        yield


@pytest.mark.parametrize(("nodes", "minimum"), [(2, 1), (3, 2), (5, 3)])
@pytest.mark.parametrize("plan", ["any", "one after the other", "its successor"])
def test_one_liar_puts_out_one_other_target_at_a_time_and_seldom(plan: str, nodes: int, minimum: int) -> None:
    for seed in range(5):
        dice = random.Random(seed)
        order = dice.sample(range(1, nodes + 1), nodes)
        bench = Bench(dict.fromkeys(order, SERVING), minimum)
        lies = _lies(bench, dice, plan, nodes)
        put_out, syncing_since = 0, 0.0
        for _ in range(50 * 4):
            bench.clock.advance(T / 4)
            next(lies)
            before, removed = bench.states(), bench.look()
            if SYNCING not in before.values():
                syncing_since = bench.clock.monotonic()
            bench.step(lost=removed)
            if bench.clock.monotonic() - syncing_since >= T / 2:  # the resync is complete
                members = [
                    ChainMember(m.target_id, SERVING if m.state is SYNCING else m.state) for m in bench.chain.members
                ]
                bench.chain = Chain(ChainId(1), bench.chain.version + 1, tuple(members))
            states = bench.states()
            put_out += removed not in (None, 1)
            others_out = [node for node, state in states.items() if state is not SERVING and node != 1]
            assert len(others_out) <= 1, f"seed {seed}: {states}"
            assert sum(state is SERVING for state in states.values()) >= minimum, f"seed {seed}: {states}"
        assert put_out <= 6, "the hold-off doubles: 1, 2, 4, 8, 16 and 30 T"
