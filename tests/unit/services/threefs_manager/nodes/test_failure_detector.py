"""Who lives, and who may hold a lease (rule R9)."""

import pytest
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.stale_stores.target_stores import StoreGenerations

from tests.harness.clocks import SteppedClock
from tests.harness.seeded_random import SeededRandom
from threefs.ids import ChainId, NodeId, TargetId
from threefs.routing import Chain, ChainMember, LocalState, Node, NodeKind, PublicState, Routing, Target
from threefs.wire import manager_pb2 as pb

NODE = pb.Node(node_id=1, kind=pb.STORAGE, address="a:1")
SERVING, SYNCING, LASTSRV, OFFLINE = (
    PublicState.SERVING,
    PublicState.SYNCING,
    PublicState.LASTSRV,
    PublicState.OFFLINE,
)
T = 10.0
STORE = 5


class Bench:
    """Targets 101, 201, 301 on nodes 1, 2, 3, in one chain."""

    def __init__(self, *states: PublicState) -> None:
        self.clock = SteppedClock()
        self.failure_detector = FailureDetector(self.clock)
        self.version = 1
        self.change(*states)

    def change(self, *states: PublicState) -> None:
        self.version += 1
        members = tuple(ChainMember(TargetId(n * 100 + 1), state) for n, state in enumerate(states, 1))
        targets = {m.target_id: Target(m.target_id, NodeId(m.target_id // 100), ChainId(1), STORE) for m in members}
        self.chain = Chain(ChainId(1), self.version, members)
        nodes = {t.node_id: Node(t.node_id, NodeKind.STORAGE, "", "h:1", 7) for t in targets.values()}
        self.routing = Routing(self.version, "c", nodes, targets, {ChainId(1): self.chain}, {}, int(T * 1000))

    def heartbeat(
        self,
        node: int,
        state: pb.LocalState = pb.LOCAL_UPTODATE,
        version: int | None = None,
        store_id: int = STORE,
    ) -> bool:
        """Whether it got a lease."""
        report = pb.TargetReport(
            target_id=node * 100 + 1,
            local_state=state,
            chain_version=self.version if version is None else version,
            store_id=store_id,
        )
        leased, _ = self.failure_detector.on_heartbeat(node, 7, [report], self.routing)
        return leased == [node * 100 + 1]

    def known(self) -> list[LocalState | None]:
        known = self.failure_detector.evaluate(self.chain, self.routing, T)
        return [known[member.target_id] for member in self.chain.members]


def test_a_node_is_alive_from_its_heartbeat_until_it_was_silent_for_the_limit() -> None:
    bench = Bench(SERVING)
    bench.heartbeat(1)
    bench.clock.advance(9.5)
    status = bench.failure_detector.status(NODE, T, {})
    assert (status.alive, status.silent_ms, status.targets[0].target_id) == (True, 9500, 101)
    bench.clock.advance(0.5)
    status = bench.failure_detector.status(NODE, T, {})
    assert (status.alive, status.silent_ms) == (False, 10_000)
    assert status.targets, "what it said last is still worth to know"


def test_a_node_without_a_heartbeat_is_silent_since_the_term_began() -> None:
    bench = Bench(SERVING)
    bench.clock.advance(3.0)
    status = bench.failure_detector.status(NODE, T, {})
    assert (status.alive, status.silent_ms, status.node) == (False, 3000, NODE)


def test_only_targets_of_the_write_path_that_know_the_newest_version_get_a_lease() -> None:
    bench = Bench(SERVING, SYNCING, OFFLINE)
    assert bench.heartbeat(1) and bench.heartbeat(2, pb.LOCAL_ONLINE) and not bench.heartbeat(3, pb.LOCAL_ONLINE)
    assert not bench.heartbeat(1, version=bench.version - 1)
    assert not bench.heartbeat(1, pb.LOCAL_OFFLINE)


def test_a_new_primary_knows_nothing_until_it_hears_or_t_is_over() -> None:
    bench = Bench(SERVING, SERVING, SERVING)
    assert bench.known() == [None, None, None]
    bench.clock.advance(9.9)
    assert bench.heartbeat(2)
    assert bench.known() == [None, LocalState.UPTODATE, None]
    bench.clock.advance(0.1)
    bench.heartbeat(2)
    assert bench.known()[0] is bench.known()[2] is LocalState.OFFLINE


def test_t_counts_from_the_last_lease_and_not_from_the_last_word() -> None:
    bench = Bench(SERVING, SERVING)
    bench.heartbeat(1)
    bench.clock.advance(5.0)
    bench.heartbeat(1, version=1)  # it cannot learn the new version, so it gets no lease
    bench.clock.advance(5.0)
    assert bench.known()[0] is LocalState.OFFLINE


def test_a_fenced_target_gets_no_lease_until_the_chain_says_that_it_is_out() -> None:
    bench = Bench(SERVING, SERVING)
    bench.heartbeat(1)
    bench.clock.advance(T)
    assert bench.heartbeat(2)
    assert bench.known()[0] is LocalState.OFFLINE
    assert not bench.heartbeat(1), "its demotion may be on its way"
    bench.failure_detector.unfence(bench.routing)
    assert not bench.heartbeat(1) and bench.known()[0] is LocalState.OFFLINE, "the outcome is not known yet"
    bench.change(OFFLINE, SERVING)
    bench.failure_detector.unfence(bench.routing)
    assert not bench.heartbeat(1, pb.LOCAL_ONLINE)
    assert bench.known()[0] is LocalState.ONLINE


def test_a_target_counts_as_back_only_when_it_knows_that_it_was_out() -> None:
    bench = Bench(OFFLINE, SERVING)
    bench.heartbeat(1, version=bench.version - 1)
    assert bench.known()[0] is None
    bench.heartbeat(1, pb.LOCAL_ONLINE)
    assert bench.known()[0] is LocalState.ONLINE


def test_what_was_equal_in_another_version_is_not_so_in_this_one() -> None:
    bench = Bench(SERVING, SYNCING)
    bench.heartbeat(1)
    bench.heartbeat(2, pb.LOCAL_UPTODATE)
    assert bench.known()[1] is LocalState.UPTODATE
    bench.change(SERVING, SYNCING)
    assert bench.known()[1] is LocalState.ONLINE


def test_its_own_word_that_it_is_out_is_believed_at_once() -> None:
    bench = Bench(SERVING, SERVING)
    bench.heartbeat(1)
    bench.heartbeat(2)
    bench.heartbeat(1, pb.LOCAL_OFFLINE)
    assert bench.known()[0] is LocalState.OFFLINE


@pytest.mark.parametrize(("store_id", "known"), [(STORE, LocalState.ONLINE), (STORE + 1, LocalState.OFFLINE)])
def test_a_survivor_with_another_disk_has_nothing_to_serve_alone_with(store_id: int, known: LocalState) -> None:
    bench = Bench(LASTSRV)
    bench.heartbeat(1, pb.LOCAL_ONLINE, store_id=store_id)
    assert bench.known() == [known]


def test_r13_a_witness_counts_only_if_it_was_heard_of_since_the_others_were_lost() -> None:
    """Else it may be dead as well, its disk with it, and those who are put out had everything."""
    bench = Bench(SERVING, SERVING)
    bench.heartbeat(1)
    bench.heartbeat(2)
    bench.clock.advance(1.0)
    bench.failure_detector.fence([TargetId(101)])
    assert bench.known() == [LocalState.OFFLINE, None]
    bench.clock.advance(0.1)
    _, changed = bench.failure_detector.on_heartbeat(
        2,
        7,
        [pb.TargetReport(target_id=201, chain_version=bench.version, local_state=pb.LOCAL_UPTODATE)],
        bench.routing,
    )
    assert changed == {1}, "its chain is looked at again"
    assert bench.known() == [LocalState.OFFLINE, LocalState.UPTODATE]


def test_what_it_holds_now_is_what_its_own_word_gave_up() -> None:
    """No lease goes to a target that says that it is out, and T does not begin anew by its word."""
    bench = Bench(SERVING, SYNCING)
    for node in (1, 2):
        assert bench.heartbeat(node)
        assert not bench.heartbeat(node, pb.LOCAL_OFFLINE)
        assert not bench.heartbeat(node, version=bench.version + 1), "a version that this manager does not know yet"
    bench.clock.advance(T)
    assert bench.known() == [LocalState.OFFLINE] * 2


def test_a_process_that_has_ended_is_silent_at_once() -> None:
    bench = Bench(SERVING)
    bench.heartbeat(1)
    bench.failure_detector.mark_dead(1, 7)
    assert not bench.failure_detector.is_alive(1, T)
    bench.failure_detector.on_register(1, 8)
    assert bench.failure_detector.is_alive(1, T)


@pytest.mark.parametrize("seed", range(40))
def test_r9_no_target_is_put_out_that_may_still_hold_a_lease(seed: int) -> None:
    """Heartbeats take up to T, get lost and overtake each other; chains change; managers are replaced."""
    dice, bench = SeededRandom(seed), Bench(SERVING, SERVING, SYNCING)
    leased_until = dict.fromkeys((1, 2, 3), 0.0)
    flying: list[tuple[float, int, float, int]] = []  # arrives at, node, sent at, chain version
    silent = {n: dice.below(2) == 0 for n in leased_until}
    put_out = 0
    for _ in range(1500):
        bench.clock.advance(0.1)
        now = bench.clock.monotonic()
        for node in leased_until:
            if dice.below(80) == 0:
                silent[node] = not silent[node]
            if dice.below(10) == 0 and not silent[node]:
                knows = bench.version - (dice.below(8) == 0)
                flying.append((now + dice.uniform(0.0, T) * (dice.below(4) == 0), node, now, knows))
        for heartbeat in sorted(flying):
            at, node, sent_at, version = heartbeat
            if at <= now:
                flying.remove(heartbeat)
                if bench.heartbeat(node, version=version):
                    leased_until[node] = max(leased_until[node], sent_at + T / 2)
        known = bench.known()
        for node, local in enumerate(known, 1):
            if local is LocalState.OFFLINE:
                put_out += 1
                assert leased_until[node] <= now, "it is not put out before its lease has ended, and gets no other"
        if dice.below(100) == 0:
            bench.change(SERVING, SERVING, SYNCING)  # of another target: who is condemned stays in
            bench.failure_detector.unfence(bench.routing)
        if dice.below(300) == 0:
            bench.failure_detector = FailureDetector(bench.clock)
    assert put_out, "somebody was silent for long enough"


def unreachable(bench: Bench) -> dict[int, dict[int, float]]:
    return {
        int(node): {int(peer): s for peer, s in peers.items()}
        for node, peers in bench.failure_detector.unreachable_peers(T).items()
    }


def test_reports_of_unreachable_peers_are_of_living_nodes() -> None:
    bench = Bench(SERVING, SERVING, SERVING)
    for node in (1, 2, 3):
        bench.heartbeat(node)
    report = [pb.UnreachablePeer(node_id=2, unreachable_ms=1500), pb.UnreachablePeer(node_id=3, unreachable_ms=20_000)]
    bench.failure_detector.on_unreachable(1, report)
    assert unreachable(bench) == {1: {2: 1.5, 3: 20.0}}
    bench.failure_detector.mark_dead(2, 7)
    assert unreachable(bench) == {1: {3: 20.0}}, "a dead peer is no failed link"
    bench.clock.advance(T - 1)
    bench.heartbeat(3)
    assert unreachable(bench) == {1: {3: 20.0}}
    bench.clock.advance(1)
    assert unreachable(bench) == {}, "nor does a dead node know anything"


def test_a_new_process_is_not_unreachable_because_the_one_before_was() -> None:
    bench = Bench(SERVING, SERVING, SERVING)
    for node in (1, 2):
        bench.heartbeat(node)
    bench.failure_detector.on_unreachable(1, [pb.UnreachablePeer(node_id=2, unreachable_ms=20_000)])
    bench.failure_detector.on_register(2, 7)
    assert unreachable(bench) == {1: {2: 20.0}}, "the same registration again"
    bench.failure_detector.on_register(2, 8)
    assert unreachable(bench) == {}


def test_a_target_whose_lease_is_withheld_is_silent_after_t() -> None:
    """R9: it is put out only when its last lease has ended, and not at all if it gets one again before."""
    bench = Bench(SERVING, SERVING, SERVING)
    for node in (1, 2, 3):
        assert bench.heartbeat(node)
    bench.failure_detector.withhold_lease(bench.chain, TargetId(201))
    bench.clock.advance(T - 1)
    assert [bench.heartbeat(node) for node in (1, 2, 3)] == [True, False, True]
    assert bench.known() == [LocalState.UPTODATE] * 3
    bench.failure_detector.withhold_lease(bench.chain, None)
    assert bench.heartbeat(2)
    bench.failure_detector.withhold_lease(bench.chain, TargetId(201))
    bench.clock.advance(T)
    assert [bench.heartbeat(node) for node in (1, 2, 3)] == [True, False, True]
    assert bench.known()[1] is LocalState.OFFLINE


def test_a_target_that_a_move_takes_away_counts_as_alive_until_its_lease_has_ended() -> None:
    """R9: till then it may serve, so nobody may take its place."""
    bench = Bench(SERVING, SERVING, SERVING)
    leaving = tuple(ChainMember(m.target_id, m.state, leaving=m.target_id == 201) for m in bench.chain.members)
    bench.chain = Chain(bench.chain.chain_id, bench.version, leaving)
    for node in (1, 2, 3):
        assert bench.heartbeat(node)
    bench.failure_detector.withhold_lease(bench.chain, bench.chain.leaving)
    bench.clock.advance(T - 1)
    assert [bench.heartbeat(node) for node in (1, 2, 3)] == [True, False, True]
    assert bench.known() == [LocalState.UPTODATE] * 3
    bench.clock.advance(1)
    assert bench.known()[1] is LocalState.OFFLINE


@pytest.mark.parametrize(("state", "is_known_again"), [(SERVING, True), (SYNCING, False), (LASTSRV, False)])
def test_a_lease_of_a_serving_target_takes_the_place_of_a_damaged_record_of_its_store(
    state: PublicState, is_known_again: bool
) -> None:
    """A serving target's process has not ended since it began to serve. Any other one may have an older disk."""
    others = (SERVING, OFFLINE) if state is not LASTSRV else (LASTSRV, OFFLINE)
    bench = Bench(*sorted((state, *others), key=[SERVING, SYNCING, LASTSRV, OFFLINE].index))
    node = next(n for n, member in enumerate(bench.chain.members, 1) if member.state is state)
    target = TargetId(node * 100 + 1)
    detector = bench.failure_detector = FailureDetector(bench.clock, StoreGenerations(lost=[target]))
    bench.heartbeat(node)
    report = detector.report(target)
    assert report is not None and (detector.generations.staleness(report) == "") is is_known_again
