"""The traffic of one class of connections, as their server counts it."""

from typing import Protocol

from threefs.telemetry.histogram import Histogram


class Carrier(Protocol):
    """A connection."""

    @property
    def sent_bytes(self) -> int: ...

    @property
    def received_bytes(self) -> int: ...


class TrafficCounters:
    """Counters of one class at one server."""

    __slots__ = ("_carriers", "_received_bytes", "_sent_bytes", "calls", "durations", "in_flight", "last_call_s")

    def __init__(self) -> None:
        self.calls = 0  # that were begun
        self.in_flight = 0  # calls that are not answered yet
        self.last_call_s = float("-inf")  # when the last one was begun, by the server's monotonic clock
        self.durations: dict[str, Histogram] = {}  # of calls that have ended, by the name of their method
        self._carriers: dict[Carrier, None] = {}
        self._sent_bytes = 0  # of connections that have ended
        self._received_bytes = 0

    def begin_call(self, now: float) -> None:
        self.calls += 1
        self.in_flight += 1
        self.last_call_s = now

    def end_call(self, method: str, seconds: float) -> None:
        self.in_flight -= 1
        assert self.in_flight >= 0, "a call ends once"
        durations = self.durations.get(method)
        if durations is None:
            durations = self.durations[method] = Histogram()
        durations.observe(seconds)

    def add(self, carrier: Carrier) -> None:
        """A connection of this class begins."""
        self._carriers[carrier] = None

    def discard(self, carrier: Carrier) -> None:
        """It has ended, or is of another class."""
        if carrier in self._carriers:
            del self._carriers[carrier]
            self._sent_bytes += carrier.sent_bytes
            self._received_bytes += carrier.received_bytes

    @property
    def connections(self) -> int:
        """Those that are open."""
        return len(self._carriers)

    @property
    def sent_bytes(self) -> int:
        """Bytes of frames and payload, of all connections so far."""
        return self._sent_bytes + sum(carrier.sent_bytes for carrier in self._carriers)

    @property
    def received_bytes(self) -> int:
        return self._received_bytes + sum(carrier.received_bytes for carrier in self._carriers)
