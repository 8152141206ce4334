"""The connections of one process: one per address and traffic class, opened when first needed, and opened again after a
loss."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import Buffer, Net
from threefs.env.shielded_wait import shielded
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
from threefs.rpc import frames
from threefs.rpc.call_durations import CallDurations
from threefs.rpc.client_connection import ClientConnection, Sink
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.receive_buffers import BodyBudget
from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp, TrafficClass

_DEFAULT_LIMITS = Limits()
_PROBE_S = 60.0  # callers have deadlines of their own, which are shorter


class ConnectionPool:
    """Calls to any address."""

    def __init__(
        self,
        net: Net,
        identity: Identity,
        *,
        clock: Clock = CLOCK,
        limits: Limits = _DEFAULT_LIMITS,
        dscp: Dscp = DEFAULT_DSCP,
    ) -> None:
        self.identity = identity
        #: Called with the address and the reason when a connection is lost. If this side closes it, the call comes
        #: before the close.
        self.on_lost: Callable[[str, ThreefsError], None] | None = None
        self.bodies = BodyBudget(limits.bodies_bytes)  # of answers that are being received
        self._durations: CallDurations | None = None
        self._net = net
        self._clock = clock
        self._limits = limits
        self._dscp = dscp
        self._met = False  # whether a service of the cluster has accepted this side, so it has the right key
        self._live: list[dict[str, ClientConnection]] = [{} for _ in TrafficClass]
        #: With their last calls: another one has taken their place, because their service is stopping.
        self._leaving: dict[ClientConnection, None] = {}
        self._connecting: dict[tuple[str, TrafficClass], asyncio.Task[ClientConnection]] = {}

    def live(self, address: str, traffic: TrafficClass = TrafficClass.DATA) -> ClientConnection | None:
        """The open connection to `address`, for hot paths that must not wait."""
        connection = self._live[traffic].get(address)
        return connection if connection is not None and not connection.closing else None

    async def connect(
        self, address: str, timeout_s: float, traffic: TrafficClass = TrafficClass.DATA
    ) -> ClientConnection:
        """The connection to `address` for calls of that class. Raises Unavailable, or the error with which the server
        refuses.

        Once a service of the cluster has accepted this side, a process that does not prove the key is no service of the
        cluster: it has taken the port of a dead one. That is Unavailable, because the service will return, or another
        one will take its place.
        """
        connection = self.live(address, traffic)
        if connection is not None:
            return connection
        task = self._connecting.get((address, traffic))
        if task is None:
            task = asyncio.create_task(self._open(address, traffic))
            self._connecting[address, traffic] = task
            task.add_done_callback(lambda done: self._opened(address, traffic, done))
        try:
            async with asyncio.timeout(timeout_s):
                return await shielded(task)  # other callers may wait for it
        except TimeoutError:
            raise Unavailable(f"cannot connect to {address}: no answer within {timeout_s:.1f} s") from None
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if task.cancelled() and waiter is not None and not waiter.cancelling():  # `close` has cancelled the task
                raise Unavailable(f"cannot connect to {address}: this side closes its connections") from None
            raise

    async def _open(self, address: str, traffic: TrafficClass) -> ClientConnection:
        stream = await self._net.connect(address, self._limits.connect_s)
        stream.mark(self._dscp.mark(traffic))
        connection = ClientConnection(stream, address, self.identity, self._clock, self._limits, traffic, self.bodies)
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
        connection.durations = self._durations
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

    def _opened(self, address: str, traffic: TrafficClass, task: "asyncio.Task[ClientConnection]") -> None:
        wanted = self._connecting.pop((address, traffic), None) is task
        if not task.cancelled() and task.exception() is None:
            connection = task.result()
            if not wanted:  # `close` came in the same moment
                connection.close()
                return
            before = self._live[traffic].get(address)
            if before is not None and before.outstanding:
                self._leaving[before] = None
            elif before is not None:  # its service is stopping, and may hang at that: nobody else would close it
                before.on_lost = None  # for a loss of its manager a storage process gives up its leases
                before.close()
            self._live[traffic][address] = connection
            connection.on_lost = partial(self._lost, address, connection)

    def _lost(self, address: str, connection: ClientConnection, error: ThreefsError) -> None:
        self._leaving.pop(connection, None)
        for live in self._live:
            if live.get(address) is connection:
                del live[address]
        if self.on_lost is not None:
            self.on_lost(address, error)

    async def probe(self, address: str) -> None:
        """Make a new connection to `address`, and close it again: it shows whether the service can be reached, however
        busy the connections are that calls use. Its packets are marked as those of data, which a network may treat in
        a way of its own; and large ones go there and back, which a network may lose where it passes small ones. Raises
        as `connect` does, and ConnectionLost. Give it a deadline."""
        connection = await self._open(address, TrafficClass.DATA)
        try:
            await connection.ping(_PROBE_S, bytes(frames.PROBE_BYTES))
        finally:
            connection.close()

    async def check(self, address: str, timeout_s: float) -> None:
        """End the connections to `address` that are dead: those on which no ping is answered.

        To be called when the service there was started anew, or is reached again after a while. The kernel notices by
        itself that an old connection is dead, or that the way is free, but it may wait for as long again before its
        next attempt, and all calls wait with it.
        """
        connections = [live[address] for live in self._live if address in live and not live[address].closing]
        await asyncio.gather(*(_ended_unless_answered(connection, timeout_s) for connection in connections))

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
        traffic: TrafficClass | None = None,
    ) -> Rep:
        """Call the service at `address`, as `ClientConnection.call` does, and connect first if there is no connection.
        `traffic` is the class of the call, by default that of its method.

        If the service has closed the idle connection in that moment, it has not begun the call, so it is repeated once.
        Raises Unavailable if the time is over before the call can be sent.
        """
        deadline = self._clock.monotonic() + timeout_s
        again = False
        traffic = method.traffic if traffic is None else traffic
        connection = self.live(address, traffic) or await self.connect(address, timeout_s, traffic)
        while True:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise Unavailable(f"the time of {method} was over before it could be sent to {address}")
            try:
                return await connection.call(
                    method, request, timeout_s=left, payload=payload, sink=sink, request_id=request_id, hops=hops
                )
            except ConnectionIdle:
                if again:
                    raise
                again = True
            connection = await self.connect(address, deadline - self._clock.monotonic(), traffic)

    def has_feature(self, address: str, feature: int) -> bool:
        """Whether there is an open connection for data to `address`, and the service there states this feature."""
        connection = self.live(address)
        return connection is not None and bool(connection.features & feature)

    def has_room(self, address: str, method: Method[Any, Any], feature: int, size: int, hops: int) -> bool:
        """Whether `begin_optional` would begin such a call now, with so many bytes of payload."""
        connection = self.live(address, method.traffic)
        return connection is not None and bool(connection.features & feature) and connection.has_room(size, hops)

    def begin_optional(
        self,
        address: str,
        method: Method[Req, Rep],
        request: Req,
        *,
        feature: int,
        timeout_s: float,
        payload: Sequence[Buffer] = (),
        hops: int = 0,
        sent: Callable[[], None] | None = None,
    ) -> "asyncio.Future[Rep] | None":
        """Begin a call that may be left out: None if there is no open connection to `address`, if the service there
        does not state this feature, or if the call would have to wait for its turn. The caller has to end the future,
        as that of `ClientConnection.call`. The kernel gets the message before this returns, as far as it takes it, and
        `sent` is called when it has all of it."""
        size = sum(memoryview(piece).nbytes for piece in payload)
        connection = self.live(address, method.traffic)
        if connection is None or not (connection.features & feature and connection.has_room(size, hops)):
            return None
        call = connection.call(method, request, timeout_s=timeout_s, payload=payload, hops=hops, sent=sent)
        connection.flush()
        return call

    def observe_calls(self, durations: CallDurations) -> None:
        """Count and time all calls from now on."""
        self._durations = durations
        for live in self._live:
            for connection in list(live.values()):
                connection.durations = durations

    def connection_count(self, traffic: TrafficClass) -> int:
        """Of the open connections of that class."""
        return len(self._live[traffic])

    def abandon(self) -> None:
        """In a forked child: forget the connections of the parent, without sending anything."""
        for live in self._live:
            live.clear()
        self._leaving.clear()
        self._connecting.clear()

    async def close(self) -> None:
        connecting = list(self._connecting.values())
        self._connecting.clear()
        await cancel_and_wait(*connecting)
        error: ThreefsError = ConnectionLost("this side closes its connections")
        for connection in [*self._leaving, *(each for live in self._live for each in live.values())]:
            connection.close(error)
        for live in self._live:
            live.clear()


async def _ended_unless_answered(connection: ClientConnection, timeout_s: float) -> None:
    with contextlib.suppress(ThreefsError):  # the reason of the end
        await connection.ping(timeout_s)
