"""Selects the meta service for a call, and finds out which services are silent.

Any service can answer, so calls must not wait for one that is dead or hangs. The death of a process ends its
connection. A service that hangs, or whose machine has died, is found by its silence: while calls wait and no frame
comes from it, the client pings it. Without an answer to the ping the connection is closed, and its calls go to another
service. Calls that are only slow are left alone, because a ping is answered in the meantime. A service that failed is
avoided until it answers a probe in the background, so that no call waits for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from threefs.background import cancel_and_wait
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import ThreefsError
from threefs.rpc.methods import Method
from threefs.rpc.traffic_class import TrafficClass

_CHECK_S = 0.2  # a service that has sent nothing for so long is pinged
_PING_TIMEOUT_S = 0.4  # of the answer to a ping
_CONNECT_TIMEOUT_S = 0.6
_PROBE_PAUSE_S = 0.5  # between probes of a service that failed


class Connection(Protocol):
    outstanding: int

    @property
    def frames(self) -> int: ...  # received

    def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> "asyncio.Future[Any]": ...

    async def ping(self, timeout_s: float) -> None: ...


class Connections(Protocol):
    """The part of threefs.rpc.connection_pool.ConnectionPool that is needed here."""

    def live(self, address: str, traffic: TrafficClass) -> Connection | None: ...

    async def connect(self, address: str, timeout_s: float, traffic: TrafficClass) -> Connection: ...


class ServiceFailover:
    """`addresses` returns the services of the routing, in the same order for all clients."""

    def __init__(
        self,
        peers: Connections,
        addresses: Callable[[], Sequence[str]],
        *,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        self._peers = peers
        self._addresses = addresses
        self._clock = clock
        self._first = random.below(1 << 16)  # clients spread over the meta services
        self._avoided: dict[str, asyncio.Task[None]] = {}
        self._pings: dict[str, asyncio.Task[None]] = {}
        self._frames: dict[str, int] = {}  # as of the last check
        self._check_timer: asyncio.TimerHandle | None = None

    def choose(self, addresses: Sequence[str], attempt: int) -> str:
        """The address to call: the same one as long as it answers, another one for a further attempt."""
        count = len(addresses)
        first = self._first + attempt
        if self._avoided:
            for turn in range(first, first + count):
                if addresses[turn % count] not in self._avoided:
                    return addresses[turn % count]
        return addresses[first % count]

    def live(self, address: str) -> Connection | None:
        """The open connection, if there is one. It is checked for silence while calls wait."""
        connection = self._peers.live(address, TrafficClass.METADATA)
        if self._check_timer is None and connection is not None:
            self._schedule_check()
        return connection

    async def connect(self, address: str, timeout_s: float) -> Connection:
        """The same, opened if necessary. Raises what ConnectionPool.connect raises."""
        connection = self.live(address)
        if connection is None:
            others = self._has_alternative(address)
            timeout_s = min(timeout_s, _CONNECT_TIMEOUT_S) if others else timeout_s
            connection = await self._peers.connect(address, timeout_s, TrafficClass.METADATA)
            if self._check_timer is None:
                self._schedule_check()
        return connection

    def record_failure(self, address: str) -> None:
        """A call failed. If its connection has ended, the service is avoided until a probe is answered."""
        if (
            address not in self._avoided
            and self._peers.live(address, TrafficClass.METADATA) is None
            and len(self._addresses()) > 1
        ):
            self._avoided[address] = asyncio.create_task(self._probe(address))

    def _has_alternative(self, address: str) -> bool:
        """Whether another service can be called."""
        return any(other != address and other not in self._avoided for other in self._addresses())

    async def _probe(self, address: str) -> None:
        try:
            while True:
                await self._clock.sleep(_PROBE_PAUSE_S)
                if address not in self._addresses():
                    return
                try:
                    found = await self._peers.connect(address, _CONNECT_TIMEOUT_S, TrafficClass.METADATA)
                    await found.ping(_PING_TIMEOUT_S)
                    return
                except ThreefsError:
                    continue
        finally:
            del self._avoided[address]

    # ---- silence ----

    def _schedule_check(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(_CHECK_S, self._check_silence)

    def _check_silence(self) -> None:
        self._check_timer = None
        waiting = False
        for address in self._addresses():
            connection = self._peers.live(address, TrafficClass.METADATA)
            if connection is None or not connection.outstanding:
                self._frames.pop(address, None)
                continue
            waiting = True
            if (
                connection.frames == self._frames.get(address)
                and address not in self._pings
                and self._has_alternative(address)
            ):
                self._pings[address] = asyncio.create_task(self._ping(address, connection))
            self._frames[address] = connection.frames
        if waiting:
            self._schedule_check()

    async def _ping(self, address: str, connection: Connection) -> None:
        try:
            await connection.ping(_PING_TIMEOUT_S)
        except ThreefsError:
            self.record_failure(address)
        finally:
            del self._pings[address]

    async def close(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        await cancel_and_wait(*self._avoided.values(), *self._pings.values())
