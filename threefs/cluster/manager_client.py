"""Calls to the managers of a cluster, of which the primary answers."""

from collections.abc import Sequence
from typing import Protocol

from threefs.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Fenced,
    NotAuthorised,
    NotPrimary,
    Overloaded,
    ProtocolError,
    Stopping,
    ThreefsError,
    Unavailable,
    UnknownMethod,
    WrongVersion,
)
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import Method, Rep, Req

#: After these another manager is asked, and of the last one they say that none answers now.
NO_ANSWER = (NotPrimary, Fenced, Unavailable, ConnectionLost, DeadlineExceeded, Overloaded, Stopping)
#: A manager says them to those that have proven the key.
_NOT_NOW = (NotPrimary, Fenced)
#: Said by a program that is no manager, or by one of another release: another one may be the primary.
STRANGE = (ProtocolError, WrongVersion)
#: The programs that take the addresses of managers, and that a user can take for one of those.
_OTHERS = {"threefs-meta": "meta", "threefs-storage": "storage"}


class Caller(Protocol):
    """One manager over one of the bindings, or all managers."""

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


class FramedManagerClient:
    """Calls one manager over frames."""

    def __init__(self, peers: ConnectionPool, address: str) -> None:
        self._peers = peers
        self._address = address

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        return await call_manager(self._peers, self._address, method, request, timeout_s=timeout_s)


async def call_manager(
    peers: ConnectionPool, address: str, method: Method[Req, Rep], request: Req, *, timeout_s: float
) -> Rep:
    """Call the manager at `address`. If another service lives there, the UnknownMethod says which one it is."""
    try:
        return await peers.call(address, method, request, timeout_s=timeout_s)
    except UnknownMethod as error:
        connection = peers.live(address, method.traffic)
        kind = _OTHERS.get(connection.program) if connection is not None else None
        if kind is None:
            raise error
        raise UnknownMethod(
            f"a {kind} service answers at {address}, and a manager is needed: give the address of one, which is "
            "`managers` in the settings of every service"
        ) from None


class ManagerClient:
    """Calls the managers in turn, beginning with the one that has answered last, or with one that speaks while that is
    silent."""

    @classmethod
    def over_frames(cls, peers: ConnectionPool, addresses: Sequence[str]) -> "ManagerClient":
        """Calls the managers at these addresses over the connections of this process."""
        return cls([FramedManagerClient(peers, address) for address in addresses])

    def __init__(self, callers: Sequence[Caller]) -> None:
        assert callers, "a cluster has at least one manager"
        self._callers = callers
        self._first = 0
        self._answered = False  # whether a manager has answered, so this side has the right key

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """The answer of the primary. `timeout_s` is for each manager.

        Raises the error of the primary, or the reason why the last manager did not answer. Raises NotAuthorised only if
        no manager has ever answered, and errors of strange programs only if these are at all addresses as well.
        """
        failure: ThreefsError | None = None
        refusal: ThreefsError | None = None
        first, first_speaks = self._first, True
        for turn in range(len(self._callers)):
            number = (first + turn) % len(self._callers)
            try:
                reply = await self._callers[number].call(method, request, timeout_s=timeout_s)
            except NO_ANSWER as error:
                failure = error
                speaks = isinstance(error, _NOT_NOW)
                self._answered |= speaks
                if number == first:
                    first_speaks = speaks
                elif speaks and not first_speaks and self._first == first:
                    self._first = number  # the other one may be dead, and each call would wait for it
                continue
            except (NotAuthorised, *STRANGE) as error:  # another process may have taken the port of a dead manager
                refusal = error
                continue
            self._first = number
            self._answered = True
            return reply
        waits = failure is not None and isinstance(refusal, STRANGE)
        if refusal is not None and not self._answered and not waits:
            raise refusal
        raise failure or Unavailable(f"no manager of this cluster answers: {refusal}")
