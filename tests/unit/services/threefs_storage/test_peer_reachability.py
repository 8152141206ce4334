"""Which peers cannot be reached: a failed link is told from a peer that is slow or busy."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from threefs_storage.peer_reachability import PeerReachability

from tests.harness.virtual_time import LOOP_CLOCK, run_virtual
from threefs.background import cancel_and_wait
from threefs.cluster.registration import HEARTBEATS_PER_T
from threefs.errors import ChainChanged, ConnectionLost, DeadlineExceeded, Overloaded, ThreefsError, Unavailable
from threefs.ids import NodeId
from threefs.routing import Node, NodeKind, Routing

T = 10.0
PROBE_S = T / HEARTBEATS_PER_T
PEER = NodeId(2)


class Bench:
    """A process with one peer; how the peer answers probes is up to the test."""

    def __init__(self) -> None:
        self.incarnation = 7
        self.is_removed = False  # from the cluster
        self.reachability = PeerReachability(self.probe, self.check, self.routing, clock=LOOP_CLOCK)
        self.reachability.on_reached = self.note_reached
        self.reached: list[float] = []  # when a peer was reached again
        self.answer: ThreefsError | None = None  # with which a probe is refused; None: it is welcome
        self.silent = False
        self.probes = 0
        self.checks: list[str] = []  # addresses whose connections were checked

    def routing(self) -> Routing:
        nodes = {PEER: Node(PEER, NodeKind.STORAGE, "", "h2:1", self.incarnation)}
        return Routing(1, "c", {} if self.is_removed else nodes, {}, {}, {}, int(T * 1000))

    def note_reached(self) -> None:
        self.reached.append(LOOP_CLOCK.monotonic())

    async def probe(self, address: str) -> None:
        assert address == "h2:1"
        self.probes += 1
        if self.silent:
            await asyncio.sleep(1000)
        if self.answer is not None:
            raise self.answer

    async def check(self, address: str, timeout_s: float) -> None:
        assert timeout_s == PROBE_S
        self.checks.append(address)

    async def fail(self, error: ThreefsError) -> None:
        async def call() -> None:
            raise error

        with pytest.raises(type(error)):
            await self.reachability.observe(PEER, call())

    async def succeed(self) -> None:
        await self.reachability.observe(PEER, asyncio.sleep(0))

    def unreachable_ms(self) -> int | None:
        found = self.reachability.unreachable()
        assert [peer.node_id for peer in found] in ([], [PEER])
        return found[0].unreachable_ms if found else None


def run(body: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        bench.reachability.start()
        try:
            await body(bench)
        finally:
            await bench.reachability.stop()

    run_virtual(main())


async def check_failing_calls(bench: Bench, error: ThreefsError) -> None:
    bench.silent = True
    await bench.fail(error)
    assert bench.unreachable_ms() is None, "a call may fail for other reasons, so the peer is probed first"
    await asyncio.sleep(2.1 * PROBE_S)
    assert bench.unreachable_ms() == pytest.approx(1100 * PROBE_S), "since the first probe that failed was made"
    await asyncio.sleep(10 * PROBE_S)
    assert bench.unreachable_ms() == pytest.approx(11100 * PROBE_S), "without another call, too"
    bench.silent = False
    assert not bench.reached and not bench.checks
    await asyncio.sleep(2 * PROBE_S)
    assert bench.unreachable_ms() is None and len(bench.reached) == 1
    assert bench.checks == ["h2:1"], "its kernel may try the old connections only much later"
    probes = bench.probes
    await asyncio.sleep(10 * PROBE_S)
    assert bench.probes == probes, "a peer that answers is probed no more"


@pytest.mark.parametrize("error", [Unavailable(), ConnectionLost(), DeadlineExceeded()])
def test_a_peer_is_unreachable_from_the_first_failed_probe_until_it_answers(error: ThreefsError) -> None:
    run(lambda bench: check_failing_calls(bench, error))


async def check_restarted_peer(bench: Bench) -> None:
    bench.silent = True
    await bench.fail(ConnectionLost())
    await asyncio.sleep(10 * PROBE_S)
    assert bench.unreachable_ms()
    bench.incarnation += 1
    assert bench.unreachable_ms() is None
    await asyncio.sleep(4.1 * PROBE_S)
    found = bench.unreachable_ms()
    assert found is not None and found < 4000 * PROBE_S


async def check_broken_probes(bench: Bench) -> None:
    bench.answer = ConnectionLost()
    await bench.fail(DeadlineExceeded())
    await asyncio.sleep(10.1 * PROBE_S)
    assert bench.unreachable_ms() == pytest.approx(9100 * PROBE_S)
    bench.answer = None
    await asyncio.sleep(PROBE_S)
    assert bench.unreachable_ms() is None


def test_a_probe_whose_connection_breaks_reaches_nobody() -> None:
    """What is between two hosts may end a connection that carries much, instead of losing it without a word."""
    run(check_broken_probes)


def test_the_time_begins_anew_with_the_process_of_the_peer() -> None:
    run(check_restarted_peer)


async def check_hanging_call(bench: Bench) -> None:
    bench.silent = True
    call = asyncio.create_task(bench.reachability.observe(PEER, asyncio.sleep(1000)))
    await asyncio.sleep(4.5 * PROBE_S)
    assert bench.unreachable_ms() is not None
    await cancel_and_wait(call)
    await bench.succeed()
    assert bench.unreachable_ms() is not None, "a link may pass small answers, and lose large ones"
    bench.silent = False
    await asyncio.sleep(1.1 * PROBE_S)
    assert bench.unreachable_ms() is None


def test_a_call_that_hangs_is_noticed_before_it_fails() -> None:
    run(check_hanging_call)


@pytest.mark.parametrize("answer", [None, Overloaded()])
def test_a_slow_or_busy_peer_is_reached(answer: ThreefsError | None) -> None:
    async def check(bench: Bench) -> None:
        bench.answer = answer
        call = asyncio.create_task(bench.reachability.observe(PEER, asyncio.sleep(1000)))
        for _ in range(100):
            await asyncio.sleep(PROBE_S / 2)
            assert bench.unreachable_ms() is None
        assert bench.probes > 10
        await cancel_and_wait(call)

    run(check)


def test_an_error_that_the_peer_answers_with_is_no_failure_of_the_link() -> None:
    async def check(bench: Bench) -> None:
        await bench.fail(ChainChanged())
        await asyncio.sleep(3 * PROBE_S)
        assert not bench.probes

    run(check)


def test_a_peer_that_is_never_called_is_not_probed() -> None:
    async def check(bench: Bench) -> None:
        await bench.succeed()
        await asyncio.sleep(10 * PROBE_S)
        assert not bench.probes

    run(check)


async def check_removed_peer(bench: Bench) -> None:
    """The process of every node that could not reach it ended at the same time."""
    bench.silent = True
    await bench.fail(ConnectionLost())
    await asyncio.sleep(10 * PROBE_S)
    assert bench.unreachable_ms()
    bench.is_removed = True
    assert bench.unreachable_ms() is None
    await asyncio.sleep(PROBE_S)
    probes = bench.probes
    await asyncio.sleep(10 * PROBE_S)
    assert bench.probes == probes
    assert len(bench.reachability._background) == 1, "the probes go on"
    bench.is_removed = False  # added anew
    await bench.fail(ConnectionLost())
    await asyncio.sleep(3 * PROBE_S)
    assert bench.unreachable_ms() is not None


def test_a_peer_that_was_removed_while_it_could_not_be_reached_is_forgotten() -> None:
    run(check_removed_peer)


def test_a_peer_that_is_removed_during_a_probe_may_still_answer() -> None:
    async def check(bench: Bench) -> None:
        bench.answer = Unavailable()
        await bench.fail(ConnectionLost())
        await asyncio.sleep(2 * PROBE_S)
        assert bench.unreachable_ms() is not None
        call = asyncio.create_task(bench.reachability.observe(PEER, asyncio.sleep(PROBE_S)))
        await asyncio.sleep(0)
        bench.is_removed = True
        await call
        assert not bench.reached and not bench.checks

    run(check)
