"""Answers that wait for a GRANT, at the service. Their memory is bounded for each connection and for the process."""

from dataclasses import dataclass
from typing import Protocol

from threefs.errors import Overloaded, ThreefsError


class HeldCall(Protocol):
    held_until: float

    @property
    def call_id(self) -> int: ...

    def grant(self) -> None: ...

    def drop(self, error: ThreefsError | None) -> None: ...


@dataclass(slots=True)
class HeldAnswers:
    """Those of all connections, and how many there were since the start."""

    bytes: int = 0  # now, with those that are being read
    announced: int = 0
    granted: int = 0
    cancelled: int = 0  # by their caller, or its connection was lost
    expired: int = 0  # no grant came in time
    refused: int = 0  # there was no room


class HeldOfConnection:
    """Those of one connection."""

    __slots__ = ("_all", "_bytes", "_calls")

    def __init__(self, held: HeldAnswers) -> None:
        self._all = held
        self._bytes = 0
        self._calls: dict[int, HeldCall] = {}

    def reserve(self, size: int, most_bytes: int) -> None:
        """Count `size` more bytes. Raises Overloaded: all connections would have more than `most_bytes`, or this one
        more than its part of the last half of that."""
        held = self._all
        total = held.bytes + size
        fits = total <= most_bytes // 2 or (total <= most_bytes and self._bytes + size <= most_bytes // 8)
        if held.bytes and not fits:
            held.refused += 1
            raise Overloaded(
                f"answers of {held.bytes} bytes wait for a GRANT, {self._bytes} of them of this connection; there is "
                f"no room for {size} more: try again later"
            )
        held.bytes = total
        self._bytes += size

    def release(self, size: int) -> None:
        self._all.bytes -= size
        self._bytes -= size

    def announce(self, call: HeldCall) -> None:
        self._calls[call.call_id] = call
        self._all.announced += 1

    def grant(self, call_id: int) -> bool:
        """False: no answer of this call waits. If one did, it has been dropped, and the peer will read so."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return False
        self._all.granted += 1
        call.grant()
        return True

    def cancel(self, call_id: int) -> bool:
        """The caller does not want the answer any more. False: none waits."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return False
        self._all.cancelled += 1
        call.drop(None)
        return True

    def cancel_all(self) -> None:
        """The connection has ended."""
        for call_id in list(self._calls):
            self.cancel(call_id)

    def expire(self, now: float) -> None:
        """Drop the answers whose grant has not come in time."""
        for call in [call for call in self._calls.values() if now >= call.held_until]:
            del self._calls[call.call_id]
            self._all.expired += 1
            call.drop(Overloaded("no GRANT came for the answer in time: ask again"))
