"""Calls to the managers of a cluster: whichever of them is primary answers."""

from collections.abc import Sequence
from typing import Protocol

from threefs.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Fenced,
    NotAuthorised,
    NotPrimary,
    Stopping,
    ThreefsError,
    Unavailable,
)
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import Method, Rep, Req


class Caller(Protocol):
    """One manager, over either binding; or all of them."""

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


class FramedManagerClient:
    """One manager, over frames."""

    def __init__(self, peers: ConnectionPool, address: str) -> None:
        self._peers = peers
        self._address = address

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        return await self._peers.call(self._address, method, request, timeout_s=timeout_s)


class ManagerClient:
    """All managers: first the one that answered last, then the others."""

    def __init__(self, callers: Sequence[Caller]) -> None:
        assert callers, "a cluster has at least one manager"
        self._callers = callers
        self._last = 0
        self._answered = False  # one of them has: so this side has the right key

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """`timeout_s` is for each of them. Raises what the primary answered, or why the last one asked did not;
        NotAuthorised only if none has ever answered."""
        failure: ThreefsError | None = None
        refusal: NotAuthorised | None = None
        for turn in range(len(self._callers)):
            number = (self._last + turn) % len(self._callers)
            try:
                reply = await self._callers[number].call(method, request, timeout_s=timeout_s)
            except (NotPrimary, Fenced, Unavailable, ConnectionLost, DeadlineExceeded, Stopping) as error:
                failure = error
                continue
            except NotAuthorised as error:  # somebody may have taken the port of one that is dead
                refusal = error
                continue
            self._last = number
            self._answered = True
            return reply
        if refusal is not None and not self._answered:
            raise refusal
        raise failure or Unavailable(f"no manager of this cluster answers: {refusal}")
