"""Publishes the current routing snapshot and the configuration, and wakes the long polls that wait for the next."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from threefs import configuration
from threefs import routing as routing_module
from threefs.configuration import NOTHING_SET, Configuration
from threefs.env.disk import run_to_completion
from threefs.errors import NotPrimary
from threefs.routing import EMPTY, Routing
from threefs.rpc.preencoded import PreencodedReply
from threefs.wire import manager_pb2 as pb

MAX_WAIT_MS = 60_000


class RoutingPublisher:
    """Snapshots are replaced as a whole; within a term their versions only rise."""

    def __init__(self) -> None:
        self.routing: Routing = EMPTY
        self.configuration: Configuration = NOTHING_SET
        self._changed = asyncio.Event()
        self._ended = False
        self._message: pb.Routing | None = None
        self._encoded: tuple[Routing | None, bytes] = (None, b"")  # a snapshot, and the same as a field of the reply

    def start_term(self, routing: Routing) -> None:
        """A term as primary begins."""
        self._ended = False
        self._message = None  # a restored store may give a version another content
        self.routing = routing
        self._wake()

    def publish(self, routing: Routing) -> None:
        if routing.version <= self.routing.version:
            return  # a later transaction has been published first
        self.routing = routing
        self._wake()

    def publish_configuration(self, newest: Configuration) -> None:
        self.configuration = newest
        self._wake()

    def message(self, routing: Routing) -> pb.Routing:
        """The snapshot as a message, which callers must not change: it is made once for thousands of requests."""
        if self._message is None or self._message.version != routing.version:
            self._message = routing_module.to_wire(routing)
        return self._message

    def _field(self) -> bytes:
        """The snapshot as it stands in the reply, serialized once: thousands of processes wait for each new one."""
        if self._encoded[0] is not self.routing:
            self._encoded = self.routing, pb.GetRoutingReply(routing=self.message(self.routing)).SerializeToString()
        return self._encoded[1]

    def end_term(self) -> None:
        """The term has ended: all who wait get NotPrimary, and ask another manager."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def answer(self, request: pb.GetRoutingRequest) -> PreencodedReply[pb.GetRoutingReply]:
        """The routing that is newer than the caller's, as soon as there is one; nothing after the wait.

        A version above the current one is of another manager's term. The caller gets the current one, and decides.
        Raises NotPrimary.
        """
        if not self._is_newer(request) and request.wait_ms and not self._ended:
            try:
                async with asyncio.timeout(min(request.wait_ms, MAX_WAIT_MS) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                return PreencodedReply(pb.GetRoutingReply, ())
        if self._ended:
            raise NotPrimary("this manager is no longer the primary")
        fields = []
        if self.routing.version != request.known_version:
            fields.append(self._field())
        if self._has_newer_configuration(request):
            newest = pb.GetRoutingReply(configuration=configuration.to_wire(self.configuration))
            fields.append(newest.SerializeToString())
        return PreencodedReply(pb.GetRoutingReply, fields)

    def _is_newer(self, request: pb.GetRoutingRequest) -> bool:
        return self.routing.version != request.known_version or self._has_newer_configuration(request)

    def _has_newer_configuration(self, request: pb.GetRoutingRequest) -> bool:
        """Older callers do not ask for it."""
        return request.HasField("known_configuration") and request.known_configuration != self.configuration.made_ns


def shielded(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """Run the handler to its end even if its call is cancelled: what is stored has to be published."""

    async def answer(request: Any) -> Any:
        return await run_to_completion(asyncio.ensure_future(handler(request)))

    return answer
