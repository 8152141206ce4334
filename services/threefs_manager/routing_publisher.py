"""The one routing snapshot that is current, and those who wait for the next."""

import asyncio

from threefs import routing as routing_module
from threefs.errors import NotPrimary
from threefs.routing import EMPTY, Routing
from threefs.wire import manager_pb2 as pb

LONGEST_WAIT_MS = 60_000


class RoutingPublisher:
    """Snapshots are replaced whole; their version only rises."""

    def __init__(self) -> None:
        self.routing: Routing = EMPTY
        self._changed = asyncio.Event()
        self._ended = False
        self._message = pb.Routing()

    def start_term(self, routing: Routing) -> None:
        """A term as primary begins."""
        self._ended = False
        self.routing = routing
        self._wake()

    def publish(self, routing: Routing) -> None:
        if routing.version <= self.routing.version:
            return  # a later transaction was faster to get here
        self.routing = routing
        self._wake()

    def message(self, routing: Routing) -> pb.Routing:
        """That snapshot for the wire. Not to be changed: made once, as thousands may ask for the current one."""
        if self._message.version != routing.version:
            self._message = routing_module.to_wire(routing)
        return self._message

    def end_term(self) -> None:
        """Whoever waits is told to ask another manager."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_newer(self, version: int, wait_ms: int) -> Routing | None:
        """The current snapshot as soon as it is not of that version; None after the wait. Raises NotPrimary.

        A version beyond ours is of another manager's time: the asker is told what is, and decides."""
        if self.routing.version == version and wait_ms and not self._ended:
            try:
                async with asyncio.timeout(min(wait_ms, LONGEST_WAIT_MS) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return None
        if self._ended:
            raise NotPrimary("this manager is no longer the primary")
        return self.routing if self.routing.version != version else None
