"""Publishes the current routing snapshot, and wakes the long polls that wait for the next one."""

import asyncio

from threefs import routing as routing_module
from threefs.errors import NotPrimary
from threefs.routing import EMPTY, Routing
from threefs.wire import manager_pb2 as pb

MAX_WAIT_MS = 60_000


class RoutingPublisher:
    """Snapshots are replaced as a whole; within a term their versions only rise."""

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
            return  # a later transaction has been published first
        self.routing = routing
        self._wake()

    def message(self, routing: Routing) -> pb.Routing:
        """The snapshot as a message, which callers must not change: it is made once for thousands of requests."""
        if self._message.version != routing.version:
            self._message = routing_module.to_wire(routing)
        return self._message

    def end_term(self) -> None:
        """The term has ended: all who wait get NotPrimary, and ask another manager."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_newer(self, version: int, wait_ms: int) -> Routing | None:
        """The current snapshot as soon as its version is another one; None after the wait. Raises NotPrimary.

        A version above the current one is of another manager's term. The caller gets the current one, and decides.
        """
        if self.routing.version == version and wait_ms and not self._ended:
            try:
                async with asyncio.timeout(min(wait_ms, MAX_WAIT_MS) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return None
        if self._ended:
            raise NotPrimary("this manager is no longer the primary")
        return self.routing if self.routing.version != version else None
