"""Which meta service is asked: any will do, so one that is gone or hangs must not be waited for.

A service whose process dies is known by its connection. One that hangs, or whose machine is gone without a word, is
known by its silence: while calls wait and nothing comes, it is pinged, and if it does not answer, its connection is
given up, which sends all its calls elsewhere. Calls that are only slow are left alone. Whoever failed is avoided until
it answers again, which is tried in the background: no call pays for that.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import ThreefsError
from threefs.rpc.methods import Method

_LOOK_S = 0.2  # a service from which nothing came for so long is pinged
_PONG_S = 0.4  # and has so long to answer
_CONNECT_S = 0.6
_AGAIN_S = 0.5  # between tries of one that failed


class Connection(Protocol):
    outstanding: int
    frames: int

    def call(self, method: Method[Any, Any], request: Any, *, timeout_s: float) -> "asyncio.Future[Any]": ...

    async def ping(self, timeout_s: float) -> None: ...


class Connections(Protocol):
    """What is needed of threefs.rpc.peers.Peers."""

    def live(self, address: str) -> Connection | None: ...

    async def connect(self, address: str, timeout_s: float) -> Connection: ...


class MetaServices:
    """`addresses` are those of the routing, in an order that all clients see alike."""

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
        self._home = random.below(1 << 16)  # clients spread over the meta services
        self._avoided: dict[str, asyncio.Task[None]] = {}
        self._pings: dict[str, asyncio.Task[None]] = {}
        self._frames: dict[str, int] = {}  # as of the last look
        self._look: asyncio.TimerHandle | None = None

    def choose(self, addresses: Sequence[str], attempt: int) -> str:
        """Whom to ask: the same one as long as it answers, others with further attempts."""
        count = len(addresses)
        first = self._home + attempt
        if self._avoided:
            for turn in range(first, first + count):
                if addresses[turn % count] not in self._avoided:
                    return addresses[turn % count]
        return addresses[first % count]

    def live(self, address: str) -> Connection | None:
        """The open connection, watched as long as calls wait."""
        connection = self._peers.live(address)
        if self._look is None and connection is not None:
            self._look_later()
        return connection

    async def connect(self, address: str, timeout_s: float) -> Connection:
        """The same, opened if need be. Raises what Peers.connect raises."""
        connection = self.live(address)
        if connection is None:
            others = self._others(address)
            connection = await self._peers.connect(address, min(timeout_s, _CONNECT_S) if others else timeout_s)
            if self._look is None:
                self._look_later()
        return connection

    def failed(self, address: str) -> None:
        """A call to it failed. If that was the end of its connection, it is avoided for some time."""
        if address not in self._avoided and self._peers.live(address) is None and len(self._addresses()) > 1:
            self._avoided[address] = asyncio.create_task(self._try_again(address))

    def _others(self, address: str) -> bool:
        """Whether somebody else can be asked."""
        return any(other != address and other not in self._avoided for other in self._addresses())

    async def _try_again(self, address: str) -> None:
        try:
            while True:
                await self._clock.sleep(_AGAIN_S)
                if address not in self._addresses():
                    return
                try:
                    await (await self._peers.connect(address, _CONNECT_S)).ping(_PONG_S)
                    return
                except ThreefsError:
                    continue
        finally:
            del self._avoided[address]

    # ---- silence ----

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        waiting = False
        for address in self._addresses():
            connection = self._peers.live(address)
            if connection is None or not connection.outstanding:
                self._frames.pop(address, None)
                continue
            waiting = True
            if connection.frames == self._frames.get(address) and address not in self._pings and self._others(address):
                self._pings[address] = asyncio.create_task(self._ping(address, connection))
            self._frames[address] = connection.frames
        if waiting:
            self._look_later()

    async def _ping(self, address: str, connection: Connection) -> None:
        try:
            await connection.ping(_PONG_S)
        except ThreefsError:
            self.failed(address)
        finally:
            del self._pings[address]

    async def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        tasks = [*self._avoided.values(), *self._pings.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
