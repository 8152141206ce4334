"""The connections of one process: one per address, opened when first needed, and opened again after a loss."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import Buffer, Net
from threefs.errors import (
    ConnectionIdle,
    ConnectionLost,
    DeadlineExceeded,
    NotAuthorised,
    Overloaded,
    ProtocolError,
    Stopping,
    ThreefsError,
    Unavailable,
    WrongCluster,
    WrongVersion,
)
from threefs.rpc.client_connection import ClientConnection, Sink
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req

_DEFAULT_LIMITS = Limits()


class ConnectionPool:
    """Calls to any address."""

    def __init__(self, net: Net, identity: Identity, *, clock: Clock = CLOCK, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.identity = identity
        #: Called with the address and the reason when a connection is lost. If this side closes it, the call comes
        #: before the close.
        self.on_lost: Callable[[str, ThreefsError], None] | None = None
        self._net = net
        self._clock = clock
        self._limits = limits
        self._met = False  # whether a service of the cluster has accepted this side, so it has the right key
        self._live: dict[str, ClientConnection] = {}
        self._connecting: dict[str, asyncio.Task[ClientConnection]] = {}

    def live(self, address: str) -> ClientConnection | None:
        """The open connection to `address`, for hot paths that must not wait."""
        connection = self._live.get(address)
        return connection if connection is not None and not connection.closing else None

    async def connect(self, address: str, timeout_s: float) -> ClientConnection:
        """The connection to `address`. Raises Unavailable, or the error with which the server refuses.

        Once a service of the cluster has accepted this side, a process that does not prove the key is no service of the
        cluster: it has taken the port of a dead one. That is Unavailable, because the service will return, or another
        one will take its place.
        """
        connection = self.live(address)
        if connection is not None:
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)  # other callers may wait for it
        except TimeoutError:
            raise Unavailable(f"cannot connect to {address}: no answer within {timeout_s:.1f} s") from None
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if task.cancelled() and waiter is not None and not waiter.cancelling():  # `close` has cancelled the task
                raise Unavailable(f"cannot connect to {address}: this side closes its connections") from None
            raise

    async def _open(self, address: str) -> ClientConnection:
        stream = await self._net.connect(address, self._limits.connect_s)
        connection = ClientConnection(stream, address, self.identity, self._clock, self._limits)
        try:
            await connection.exchange_hello(self._limits.connect_s)
        except (ConnectionLost, DeadlineExceeded) as error:  # no call was sent yet, so it is safe to try again
            connection.close()
            raise Unavailable(f"cannot connect to {address}: {error}") from None
        except ThreefsError as error:
            connection.close()
            if self._is_a_stranger(error):
                raise Unavailable(f"no service of this cluster listens at {address}: {error}") from None
            raise
        except BaseException:
            connection.close()
            raise
        self._met = True
        return connection

    def _is_a_stranger(self, error: ThreefsError) -> bool:
        """Whether the process that refused HELLO may be no service of this cluster. Its error is not raised then,
        because such a process could make a file seem to be gone."""
        if isinstance(error, Unavailable | Overloaded | Stopping):
            return False
        if not isinstance(error, NotAuthorised | WrongVersion | WrongCluster | ProtocolError):
            return True
        needs_other = isinstance(error, NotAuthorised | WrongVersion) and not self.identity.token  # a key, or a program
        return self._met and not needs_other

    def _opened(self, address: str, task: "asyncio.Task[ClientConnection]") -> None:
        wanted = self._connecting.pop(address, None) is task
        if not task.cancelled() and task.exception() is None:
            connection = task.result()
            if not wanted:  # `close` came in the same moment
                connection.close()
                return
            self._live[address] = connection
            if self.on_lost is not None:
                connection.on_lost = partial(self.on_lost, address)

    async def call(
        self,
        address: str,
        method: Method[Req, Rep],
        request: Req,
        *,
        timeout_s: float,
        payload: Sequence[Buffer] = (),
        sink: Sink | None = None,
        request_id: int = 0,
        hops: int | None = None,
    ) -> Rep:
        """Call the service at `address`, as `ClientConnection.call` does, and connect first if there is no connection.

        If the service has closed the idle connection in that moment, it has not begun the call, so it is repeated once.
        """
        deadline = self._clock.monotonic() + timeout_s
        again = False
        connection = self.live(address) or await self.connect(address, timeout_s)
        while True:
            left = deadline - self._clock.monotonic()
            try:
                return await connection.call(
                    method, request, timeout_s=left, payload=payload, sink=sink, request_id=request_id, hops=hops
                )
            except ConnectionIdle:
                if again:
                    raise
                again = True
            connection = await self.connect(address, deadline - self._clock.monotonic())

    def abandon(self) -> None:
        """In a forked child: forget the connections of the parent, without sending anything."""
        self._live.clear()
        self._connecting.clear()

    async def close(self) -> None:
        connecting = list(self._connecting.values())
        self._connecting.clear()
        await cancel_and_wait(*connecting)
        error: ThreefsError = ConnectionLost("this side closes its connections")
        for connection in list(self._live.values()):
            connection.close(error)
        self._live.clear()
