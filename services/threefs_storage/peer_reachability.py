"""Which storage processes this one cannot reach, for the manager: a link may fail although both its ends work.

A peer is suspected when a call to it fails on the way, or has no answer for a while. A suspected peer is probed until
it answers: with a connection of its own, because the calls of a busy one wait for each other. A slow or overloaded peer
still takes connections, so it counts as reached; so does one that waits for a process behind it. Answers to calls
acquit nobody: a link may pass small packets and lose large ones, which a probe has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from threefs.background import BackgroundTasks
from threefs.cluster.registration import HEARTBEATS_PER_T
from threefs.env.clock import Clock
from threefs.errors import ConnectionLost, DeadlineExceeded, ThreefsError, Unavailable
from threefs.ids import NodeId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb

_MIN_INTERVAL_S = 0.05  # between two probes of a peer; mostly it is that of heartbeats
T = TypeVar("T")

_LOG = structlog.get_logger()


@dataclass(slots=True)
class _Peer:
    calls: int = 0  # without an answer
    waiting_since: float = 0.0  # when the first of these was made, or the last answer came
    suspected: bool = False  # a call has failed on its way, and no probe was answered since
    unreachable_since: float | None = None
    incarnation: int = 0  # of the process that was probed last


class PeerReachability:
    """One per storage process."""

    def __init__(
        self,
        probe: Callable[[str], Awaitable[None]],
        check: Callable[[str, float], Coroutine[Any, Any, None]],
        routing: Callable[[], Routing],
        *,
        clock: Clock,
    ) -> None:
        """`probe` and `check` are those of `ConnectionPool`."""
        self._probe_address = probe
        self._check_connections = check
        self._routing = routing
        self._clock = clock
        #: Called when a peer is reached again: a target may be kept out of its chain until the manager hears of it.
        self.on_reached: Callable[[], None] = lambda: None
        self._peers: dict[NodeId, _Peer] = {}
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("probes of peers", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    async def observe(self, node_id: NodeId, call: Awaitable[T]) -> T:
        """The result of a call to that process, of which it is noted whether it was answered."""
        peer = self._peers.setdefault(node_id, _Peer())
        if not peer.calls:
            peer.waiting_since = self._clock.monotonic()
        peer.calls += 1
        try:
            result = await call
        except (Unavailable, ConnectionLost, DeadlineExceeded):
            peer.suspected = True
            raise
        finally:
            peer.calls -= 1
        peer.waiting_since = self._clock.monotonic()
        return result

    def unreachable(self) -> list[pb.UnreachablePeer]:
        """The peers that cannot be reached now, for the heartbeat."""
        now, nodes = self._clock.monotonic(), self._routing().nodes
        return [
            pb.UnreachablePeer(node_id=node_id, unreachable_ms=int((now - peer.unreachable_since) * 1000))
            for node_id, peer in self._peers.items()
            # A process that was started since was not tried yet.
            if peer.unreachable_since is not None
            and node_id in nodes
            and peer.incarnation == nodes[node_id].incarnation
        ]

    async def _run(self) -> None:
        while True:
            interval_s = self._interval_s()
            await self._clock.sleep(interval_s)
            self._forget_removed()
            due = [node_id for node_id, peer in self._peers.items() if self._is_suspect(peer, interval_s)]
            await asyncio.gather(*(self._probe(node_id, interval_s) for node_id in due))

    def _forget_removed(self) -> None:
        """A node that was removed from the cluster while it could not be reached would be probed for ever."""
        nodes = self._routing().nodes
        for node_id in [node_id for node_id in self._peers if node_id not in nodes]:
            del self._peers[node_id]

    def _interval_s(self) -> float:
        return max(_MIN_INTERVAL_S, self._routing().lease_s / HEARTBEATS_PER_T)

    def _is_suspect(self, peer: _Peer, interval_s: float) -> bool:
        if peer.suspected or peer.unreachable_since is not None:
            return True
        return peer.calls > 0 and self._clock.monotonic() - peer.waiting_since >= interval_s

    async def _probe(self, node_id: NodeId, timeout_s: float) -> None:
        peer, node = self._peers[node_id], self._routing().nodes.get(node_id)
        if node is None or not node.address:
            return  # removed in this moment; or another node has its address now, and it has to register first
        if peer.incarnation != node.incarnation:
            peer.incarnation, peer.unreachable_since = node.incarnation, None
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await self._probe_address(node.address)
        except (Unavailable, ConnectionLost, TimeoutError) as error:
            if peer.unreachable_since is None:
                peer.unreachable_since = began
                _LOG.warning("a peer cannot be reached", node=node_id, address=node.address, error=str(error))
            return
        except ThreefsError:
            pass  # it refuses this process, for load or while it stops: it was reached
        self._note_reached(node_id, peer)

    def _note_reached(self, node_id: NodeId, peer: _Peer) -> None:
        was_unreachable = peer.unreachable_since is not None
        node = self._routing().nodes.get(node_id)
        peer.waiting_since = self._clock.monotonic()
        peer.suspected = False
        peer.unreachable_since = None
        if was_unreachable and node is not None:  # none: it was removed while it was probed
            _LOG.info("a peer is reached again", node=node_id)
            check = self._check_connections(node.address, self._interval_s())
            self._background.attempt(f"check of the connections to node {node_id}", check)
            self.on_reached()
