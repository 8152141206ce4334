"""Evicting connections: those that hold memory of the server without any progress, and those whose peer is gone.

A server checks its connections every second. When it has no memory for other calls, it evicts at once the connection
that would hold its memory for the longest time.

A server that was suspended evicts all. A request of before may be older than what is remembered of its repeats.
"""

from collections.abc import Collection
from typing import Protocol

from threefs.errors import ConnectionIdle, ConnectionLost, ThreefsError
from threefs.rpc.limits import Limits

CHECK_INTERVAL_S = 1.0
#: A check that comes so late means that this process did not run.
SUSPENDED_S = 30.0
#: A slower transfer counts as no progress.
_MIN_BYTES_PER_S = 16 << 10
#: A peer that needs longer to take what is queued for it is evicted when others need memory.
_SLOW_S = 10.0


class Peer(Protocol):
    """A connection, as the reaper sees it."""

    progress: "Progress"
    has_place: bool  # it is one of the bounded number of connections, until it is asked to leave

    @property
    def sent_bytes(self) -> int:
        """Bytes that the kernel has taken for the peer, in total."""
        ...

    @property
    def received_bytes(self) -> int:
        """Bytes that came from the peer, in total."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the peer to take them."""
        ...

    @property
    def expected_bytes(self) -> int:
        """Bytes of memory held for messages that the peer has begun and not ended; at least 1 if there is one."""
        ...

    @property
    def busy(self) -> bool:
        """Whether it waits for answers."""
        ...

    def drop_late_calls(self, now: float) -> None:
        """Fail the calls whose payload did not come in time."""
        ...

    def evict(self, error: ThreefsError) -> None: ...


class Progress:
    """The progress of a connection, as of the last check. Times are seconds of the server's clock."""

    __slots__ = (
        "began",
        "expected",
        "idle_since",
        "queued",
        "receive_progress_at",
        "received",
        "receiving_s",
        "send_progress_at",
        "sending_s",
        "sent",
    )

    def __init__(self, now: float) -> None:
        self.began = now
        self.sent = self.received = 0  # in total
        self.queued = self.expected = 0  # bytes
        self.idle_since = now
        self.send_progress_at = now  # when the peer last took all that was queued, or enough of it
        self.receive_progress_at = now  # when the peer last sent all that it had begun, or enough of it
        self.sending_s = self.receiving_s = 0.0  # for the rest of what is queued, or begun, at this rate

    def check(self, peer: Peer, now: float, elapsed_s: float) -> None:
        sent, received = peer.sent_bytes - self.sent, peer.received_bytes - self.received
        self.sent += sent
        self.received += received
        least = _MIN_BYTES_PER_S * elapsed_s
        queued, expected = peer.queued_bytes, peer.expected_bytes
        if sent >= least or not queued:
            self.send_progress_at = now
        if received >= least or not expected:
            self.receive_progress_at = now
        if sent or received or queued or expected or peer.busy:
            self.idle_since = now
        # The rate is unknown if all that waited at the last check is done: the rest may have been there for a moment
        # only.
        self.sending_s = queued * elapsed_s / max(sent, 1) if sent < self.queued else 0.0
        self.receiving_s = expected * elapsed_s / max(received, 1) if received < self.expected else 0.0
        self.queued, self.expected = queued, expected


class ConnectionReaper:
    """Evicts connections of one server."""

    def __init__(self, peers: Collection[Peer], limits: Limits) -> None:
        self._peers = peers
        self._limits = limits
        self._checked_at: float | None = None
        self._slow: list[Peer] = []  # at the last check; only a check changes the rates
        self._leaving: Peer | None = None  # it was evicted since then, and may not have given its memory back yet

    def check(self, now: float) -> None:
        """To be called every CHECK_INTERVAL_S."""
        elapsed_s = CHECK_INTERVAL_S if self._checked_at is None else max(now - self._checked_at, 0.001)
        was_suspended = self.is_late(now)
        self._checked_at = now
        self._slow, self._leaving = [], None
        for peer in list(self._peers):
            if was_suspended:
                peer.evict(_end_by_suspension(peer, elapsed_s))
                continue
            peer.drop_late_calls(now)
            progress = peer.progress
            progress.check(peer, now, elapsed_s)
            error = self._reason_to_evict(progress, now)
            if error is not None:
                peer.evict(error)
            elif _hold_s(peer) >= _SLOW_S:
                self._slow.append(peer)

    def is_late(self, now: float) -> bool:
        """Whether this process was suspended, and the connections of before are not evicted yet."""
        return self._checked_at is not None and now - self._checked_at >= SUSPENDED_S

    def free_memory(self) -> bool:
        """Evict the peer that will hold its memory for the longest time. False: every peer makes progress. It is called
        for each call that finds no memory, so it must not look at all peers, and evicts no other one before the memory
        of the last one is free: it is told why, and its connection closes in the next step of the loop."""
        if self._leaving is not None and _holds_memory(self._leaving):
            return True
        slowest = max(self._slow, key=_hold_s, default=None)
        if slowest is None or _hold_s(slowest) < _SLOW_S:
            return False
        self._slow.remove(slowest)
        self._leaving = slowest
        slowest.evict(
            ConnectionLost(
                "this service needs the memory of this connection for others, because it makes hardly any progress"
            )
        )
        return True

    def idlest(self, now: float) -> Peer | None:
        """The connection with a place that has been idle for longest, if it has been for a while."""
        placed = (peer for peer in self._peers if peer.has_place)
        idlest = min(placed, key=lambda peer: peer.progress.idle_since, default=None)
        if idlest is None or idlest.busy or now - idlest.progress.idle_since < _SLOW_S:
            return None
        return idlest

    def free_connection(self, now: float) -> bool:
        """Evict the connection that has been idle for longest, if it has been for a while. False: there is none."""
        idlest = self.idlest(now)
        if idlest is None:
            return False
        idlest.evict(ConnectionIdle("this service has too many connections, and this one is idle: connect again"))
        return True

    def _reason_to_evict(self, progress: Progress, now: float) -> ThreefsError | None:
        limits = self._limits
        if now - progress.send_progress_at >= limits.stall_s:
            return ConnectionLost(f"this peer has taken nothing of its answers for {limits.stall_s:.0f} s")
        if now - progress.receive_progress_at >= limits.stall_s:
            return ConnectionLost(f"this peer has not sent the rest of a message for {limits.stall_s:.0f} s")
        if now - progress.idle_since >= limits.idle_s:
            return ConnectionIdle(f"idle for {limits.idle_s:.0f} s: connect again")
        return None


def _end_by_suspension(peer: Peer, suspended_s: float) -> ThreefsError:
    """ConnectionIdle says that no call of the connection was begun."""
    error = ConnectionLost if peer.busy else ConnectionIdle
    return error(f"this service did not run for {suspended_s:.0f} s: connect again")


def _hold_s(peer: Peer) -> float:
    """For how many seconds the peer will still hold memory, at its present rate; 0 while the rate is unknown."""
    progress = peer.progress
    return max(progress.sending_s, progress.receiving_s) if _holds_memory(peer) else 0.0


def _holds_memory(peer: Peer) -> bool:
    return bool(peer.queued_bytes or peer.expected_bytes)
