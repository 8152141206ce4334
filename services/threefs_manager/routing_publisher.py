"""Publishes the current routing snapshot and the configuration, and wakes the long polls that wait for the next."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from threefs import configuration, routing_changes
from threefs import routing as routing_module
from threefs.configuration import NOTHING_SET, Configuration
from threefs.env.disk import run_to_completion
from threefs.errors import NotPrimary
from threefs.routing import EMPTY, Routing
from threefs.routing_changes import RoutingChanges
from threefs.rpc.preencoded import PreencodedReply
from threefs.wire import manager_pb2 as pb

MAX_WAIT_MS = 60_000
#: What is remembered of earlier changes: for callers that were away for a moment, or changes that come quickly.
_MAX_STEPS = 256
_MAX_ENTRIES = 1 << 14


def term_number(epoch: int, wall_ns: int) -> int:
    """A number that no other term has: a restored store may give out an epoch again, but at another time."""
    return int.from_bytes(hashlib.blake2b(f"{epoch}/{wall_ns}".encode(), digest_size=8).digest(), "little")


class RoutingPublisher:
    """Snapshots are replaced as a whole; within a term their versions only rise."""

    def __init__(self) -> None:
        self.routing: Routing = EMPTY
        self.configuration: Configuration = NOTHING_SET
        self._changed = asyncio.Event()
        self._ended = False
        self._message: pb.Routing | None = None
        self._term = 0
        self._steps: deque[RoutingChanges] = deque()  # from one snapshot of this term to the next
        self._entries = 0  # of all steps
        self._from_base: dict[int, bytes | None] = {}  # by version: the changes since then, as fields of the reply
        self._encoded: tuple[Routing | None, bytes] = (None, b"")  # a snapshot, and the same as a field of the reply

    def start_term(self, routing: Routing, term: int) -> None:
        """A term as primary begins; `term` is a number that no other term of any manager has. 0: changes are never
        sent."""
        self._ended = False
        self._message = None  # a restored store may give a version another content
        self._term = term
        self._steps.clear()
        self._entries = 0
        self._from_base.clear()
        self.routing = routing
        self._wake()

    def publish(self, routing: Routing) -> None:
        if routing.version <= self.routing.version:
            return  # a later transaction has been published first
        self._remember(routing_changes.between(self.routing, routing))
        self.routing = routing
        self._wake()

    def _remember(self, step: RoutingChanges) -> None:
        assert not self._steps or self._steps[-1].changed.version == step.base_version, "steps follow each other"
        self._from_base.clear()
        self._steps.append(step)
        self._entries += step.entries
        while self._steps and (len(self._steps) > _MAX_STEPS or self._entries > _MAX_ENTRIES):
            self._entries -= self._steps.popleft().entries

    def publish_configuration(self, newest: Configuration) -> None:
        self.configuration = newest
        self._wake()

    def message(self, routing: Routing) -> pb.Routing:
        """The snapshot as a message, which callers must not change: it is made once for thousands of requests."""
        if self._message is None or self._message.version != routing.version:
            self._message = routing_module.to_wire(routing)
        return self._message

    def _fields(self, request: pb.GetRoutingRequest) -> bytes:
        """The snapshot as it stands in the reply, or what has changed since the one that the caller knows. Each is
        serialized once: thousands of processes wait for each new one."""
        changes = None
        if self._term and request.known_term == self._term:
            changes = self._changes_since(request.known_version)
        if changes is not None:
            return changes
        if self._encoded[0] is not self.routing:
            reply = pb.GetRoutingReply(routing=self.message(self.routing), term=self._term)
            self._encoded = self.routing, reply.SerializeToString()
        return self._encoded[1]

    def _changes_since(self, version: int) -> bytes | None:
        """None: they are not remembered, or the whole snapshot is hardly more."""
        if version not in self._from_base:
            first = next((place for place, step in enumerate(self._steps) if step.base_version == version), None)
            if first is None:
                return None  # and not noted: callers may name any number
            self._from_base[version] = self._encoded_changes(first)
        return self._from_base[version]

    def _encoded_changes(self, first: int) -> bytes | None:
        changes = self._steps[first]
        for step in islice(self._steps, first + 1, None):
            changes = changes.then(step)
        if 2 * changes.entries > routing_changes.entries_of(self.routing):
            return None
        return pb.GetRoutingReply(changes=routing_changes.to_wire(changes), term=self._term).SerializeToString()

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
            fields.append(self._fields(request))
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
