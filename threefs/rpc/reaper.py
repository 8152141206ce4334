"""Which peers a server lets go of: those that hold its memory and do nothing about it, and those that are gone.

A server looks at its connections every second. When it has no more room for what others ask, it lets go at once of the
one that would hold its memory for the longest time.
"""

from collections.abc import Collection
from typing import Protocol

from threefs.errors import ConnectionIdle, ConnectionLost, ThreefsError
from threefs.rpc.limits import Limits

CHECK_INTERVAL_S = 1.0
#: Slower than that counts as standing still.
_LEAST_BYTES_S = 16 << 10
#: Who takes longer than that to take what waits for it gives way to others, when there is no room for them.
_SLOW_S = 10.0


class Peer(Protocol):
    """What is known of a connection."""

    progress: "Progress"

    @property
    def sent_bytes(self) -> int:
        """That the peer's kernel has accepted, ever."""
        ...

    @property
    def received_bytes(self) -> int:
        """That came from it, ever."""
        ...

    @property
    def queued_bytes(self) -> int:
        """That wait for the peer to take them."""
        ...

    @property
    def expected_bytes(self) -> int:
        """Of memory that is held for what it has begun to send and not ended; 1 at least if there is such a thing."""
        ...

    @property
    def busy(self) -> bool:
        """It waits for answers."""
        ...

    def drop_late_calls(self, now: float) -> None:
        """Give up payloads that did not come in their time."""
        ...

    def evict(self, error: ThreefsError) -> None: ...


class Progress:
    """How a connection got on, as of the last look. Times are seconds of the server's clock."""

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
        self.sent = self.received = 0  # ever
        self.queued = self.expected = 0  # bytes
        self.idle_since = now
        self.send_progress_at = now  # it has taken what was queued, or enough of it
        self.receive_progress_at = now  # it has sent what it had begun, or enough of it
        self.sending_s = self.receiving_s = 0.0  # until all that is queued, or begun, is through at this pace

    def check(self, peer: Peer, now: float, elapsed_s: float) -> None:
        sent, received = peer.sent_bytes - self.sent, peer.received_bytes - self.received
        self.sent += sent
        self.received += received
        least = _LEAST_BYTES_S * elapsed_s
        queued, expected = peer.queued_bytes, peer.expected_bytes
        if sent >= least or not queued:
            self.send_progress_at = now
        if received >= least or not expected:
            self.receive_progress_at = now
        if sent or received or queued or expected or peer.busy:
            self.idle_since = now
        # Of who has got through all that waited at the last look, the pace is not known: the rest may be a moment old.
        self.sending_s = queued * elapsed_s / max(sent, 1) if sent < self.queued else 0.0
        self.receiving_s = expected * elapsed_s / max(received, 1) if received < self.expected else 0.0
        self.queued, self.expected = queued, expected


class Reaper:
    def __init__(self, peers: Collection[Peer], limits: Limits) -> None:
        self._peers = peers
        self._limits = limits
        self._checked_at = 0.0

    def check(self, now: float) -> None:
        """To be called every LOOK_S."""
        elapsed_s = max(now - self._checked_at, 0.001)
        self._checked_at = now
        for peer in list(self._peers):
            peer.drop_late_calls(now)
            progress = peer.progress
            progress.check(peer, now, elapsed_s)
            error = self._reason_to_evict(progress, now)
            if error is not None:
                peer.evict(error)

    def free_memory(self) -> bool:
        """There is no room: let go of the peer that holds its memory for the longest time. False: all get on well."""
        slowest = max(self._peers, key=_hold_s, default=None)
        if slowest is None or _hold_s(slowest) < _SLOW_S:
            return False
        slowest.evict(
            ConnectionLost("this service has no memory for others, and what waits for you has hardly moved: closed")
        )
        return True

    def free_connection(self, now: float) -> bool:
        """There are too many connections: let go of the one that has been idle for longest, if that is a while."""
        idlest = min(self._peers, key=lambda peer: peer.progress.idle_since, default=None)
        if idlest is None or idlest.busy or now - idlest.progress.idle_since < _SLOW_S:
            return False
        idlest.evict(ConnectionIdle("this service has too many connections, and this one is idle: connect again"))
        return True

    def _reason_to_evict(self, progress: Progress, now: float) -> ThreefsError | None:
        limits = self._limits
        if now - progress.send_progress_at >= limits.stall_s:
            return ConnectionLost(f"nothing of what waits for you was taken for {limits.stall_s:.0f} s")
        if now - progress.receive_progress_at >= limits.stall_s:
            return ConnectionLost(f"the rest of what you began to send did not come for {limits.stall_s:.0f} s")
        if now - progress.idle_since >= limits.idle_s:
            return ConnectionIdle(f"idle for {limits.idle_s:.0f} s: connect again")
        return None


def _hold_s(peer: Peer) -> float:
    """How long the memory that it holds will be held; 0 while nobody can know."""
    progress = peer.progress
    if not (peer.queued_bytes or peer.expected_bytes):
        return 0.0
    return max(progress.sending_s, progress.receiving_s)
