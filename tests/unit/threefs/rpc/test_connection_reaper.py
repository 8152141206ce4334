"""Who is let go of, and when."""

import pytest

from threefs.errors import ConnectionIdle, ConnectionLost, ThreefsError
from threefs.rpc.connection_reaper import ConnectionReaper, Progress
from threefs.rpc.limits import Limits

LIMITS = Limits(stall_s=30.0, idle_s=900.0)
MIB = 1 << 20


class FakePeer:
    def __init__(self, now: float = 0.0) -> None:
        self.progress = Progress(now)
        self.sent_bytes = self.received_bytes = self.queued_bytes = self.expected_bytes = 0
        self.busy = False
        self.has_place = True
        self.end: ThreefsError | None = None
        self.late: list[float] = []

    def drop_late_calls(self, now: float) -> None:
        self.late.append(now)

    def evict(self, error: ThreefsError) -> None:
        self.end = error


def after(
    reaper: ConnectionReaper, peer: FakePeer, seconds: int, *, sent: int = 0, received: int = 0, begin: int = 0
) -> None:
    """Look so often; that many bytes go each second."""
    for second in range(begin + 1, begin + seconds + 1):
        peer.sent_bytes += sent
        peer.received_bytes += received
        reaper.check(float(second))


@pytest.mark.parametrize("what", ["queued_bytes", "expected_bytes"])
def test_a_peer_that_reads_nothing_is_disconnected(what: str) -> None:
    peer = FakePeer()
    setattr(peer, what, MIB)
    reaper = ConnectionReaper([peer], LIMITS)
    after(reaper, peer, 29)
    assert peer.end is None
    after(reaper, peer, 1, begin=29)
    assert isinstance(peer.end, ConnectionLost)
    assert peer.late == [float(second) for second in range(1, 31)]


def test_a_peer_that_reads_is_kept_and_a_byte_now_and_then_is_no_read() -> None:
    for rate, kept in ((MIB, True), (10, False)):
        peer = FakePeer()
        peer.queued_bytes, peer.busy = 64 * MIB, True
        after(ConnectionReaper([peer], LIMITS), peer, 100, sent=rate)
        assert (peer.end is None) == kept


def test_pings_of_a_peer_that_takes_nothing_do_not_count() -> None:
    peer = FakePeer()
    peer.queued_bytes = MIB
    after(ConnectionReaper([peer], LIMITS), peer, 30, received=MIB)
    assert peer.end is not None


def test_a_peer_with_calls_under_way_may_be_silent_and_an_idle_one_only_for_a_while() -> None:
    for busy in (True, False):
        peer = FakePeer()
        peer.busy = busy
        after(ConnectionReaper([peer], LIMITS), peer, 1000)
        assert (peer.end is None) == busy
        assert busy or isinstance(peer.end, ConnectionIdle)


def test_after_a_suspension_of_the_service_all_are_disconnected() -> None:
    """What they sent before may be older than what is remembered of its repeats."""
    quiet, calls = FakePeer(), FakePeer()
    calls.busy = True
    reaper = ConnectionReaper([quiet, calls], LIMITS)
    after(reaper, quiet, 3)
    reaper.check(32.0)
    assert quiet.end is None and calls.end is None and not reaper.is_late(32.0)
    assert reaper.is_late(3 * 3600.0)
    reaper.check(3 * 3600.0)
    assert isinstance(quiet.end, ConnectionIdle) and isinstance(calls.end, ConnectionLost)
    assert not reaper.is_late(3 * 3600.0), "new ones may call"


def test_without_room_the_slowest_peer_is_disconnected_and_no_quick_one() -> None:
    quick, slow, small = FakePeer(), FakePeer(), FakePeer()
    peers = [quick, slow, small]
    quick.queued_bytes = slow.queued_bytes = 64 * MIB
    reaper = ConnectionReaper(peers, LIMITS)
    assert not reaper.free_memory(), "nobody knows yet"
    for second in range(1, 4):
        quick.sent_bytes += 100 * MIB
        slow.sent_bytes += 100_000
        reaper.check(float(second))
    assert reaper.free_memory() and slow.end is not None and quick.end is None and small.end is None
    peers.remove(slow)
    slow.queued_bytes = 0
    assert not reaper.free_memory()


def test_no_further_peer_is_disconnected_before_the_memory_of_the_last_one_is_free() -> None:
    """A peer that sends gives its memory back in the next step of the loop. Each request of that step evicted one."""
    peers = [FakePeer() for _ in range(3)]
    reaper = ConnectionReaper(peers, LIMITS)
    for peer in peers:
        peer.expected_bytes, peer.busy = 64 * MIB, True
    for second in range(1, 4):
        for peer in peers:
            peer.received_bytes += 100_000
            peer.expected_bytes -= 100_000
        reaper.check(float(second))
    assert all(reaper.free_memory() for _ in range(8))
    (gone,) = (peer for peer in peers if peer.end is not None)
    gone.expected_bytes = 0
    assert reaper.free_memory() and sum(peer.end is not None for peer in peers) == 2, "it was not enough"


def test_a_peer_that_does_not_leave_is_disconnected_again_after_the_next_check() -> None:
    peer = FakePeer()
    peer.expected_bytes = 64 * MIB
    reaper = ConnectionReaper([peer], LIMITS)
    after(reaper, peer, 2, received=100_000)
    assert reaper.free_memory()
    peer.end = None
    assert reaper.free_memory() and peer.end is None
    after(reaper, peer, 1, received=100_000, begin=2)
    assert reaper.free_memory() and peer.end is not None


def test_a_lack_of_memory_costs_the_same_however_many_peers_there_are() -> None:
    """A refusal, and each attempt of a body that waited, cost 10 ms with 4096 peers."""
    looks = 0

    class Noted(FakePeer):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "progress"
            return super().__getattribute__(name)

    reaper = ConnectionReaper([Noted() for _ in range(100)], LIMITS)
    reaper.check(1.0)
    looks = 0
    for _ in range(10):
        assert not reaper.free_memory()
    assert looks == 0


@pytest.mark.parametrize("before", [0, 100])
def test_a_peer_that_has_read_all_of_the_last_round_is_not_slow(before: int) -> None:
    """Answers that were queued a moment ago counted as if the peer had had a second for them."""
    sends, receives = FakePeer(), FakePeer()
    reaper = ConnectionReaper([sends, receives], LIMITS)
    sends.expected_bytes = receives.queued_bytes = before
    reaper.check(1.0)
    sends.received_bytes = receives.sent_bytes = before
    sends.expected_bytes = receives.queued_bytes = 64 * MIB  # just now
    reaper.check(2.0)
    assert not reaper.free_memory()
    sends.received_bytes += 1000
    receives.sent_bytes += 1000
    reaper.check(3.0)
    assert reaper.free_memory(), "a second later it is known"


def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_for_longest() -> None:
    old, older, busy = FakePeer(), FakePeer(), FakePeer()
    busy.busy = True
    reaper = ConnectionReaper([old, older, busy], LIMITS)
    after(reaper, old, 5, sent=1)
    assert not reaper.free_connection(6.0), "all were used a moment ago"
    assert reaper.free_connection(20.0) and older.end is not None and old.end is None
    older.has_place = False  # it is asked to leave, or has never had one
    assert reaper.free_connection(20.0) and old.end is not None
    old.has_place = False
    assert not reaper.free_connection(20.0), "their end would make room for nobody"
    assert not ConnectionReaper([busy], LIMITS).free_connection(1000.0)
