"""Calls to targets of other storage processes, by the number of the target."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from threefs.env.clock import CLOCK, Clock
from threefs.errors import Unavailable
from threefs.ids import TargetId
from threefs.routing import Routing
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.methods import Method, Rep, Req
from threefs_storage.peer_reachability import PeerReachability

T = TypeVar("T")


class PeerTargets:
    """The connections of this process, with the routing that says where each target is served."""

    def __init__(self, connections: ConnectionPool, routing: Callable[[], Routing], *, clock: Clock = CLOCK) -> None:
        self.reachability = PeerReachability(connections.probe, connections.check, routing, clock=clock)
        self._connections = connections
        self._routing = routing

    def shown(self, target: TargetId) -> str:
        """As errors name it."""
        return self._routing().shown_target(target)

    def node_of(self, target: TargetId) -> str:
        """As errors name it."""
        known = self._routing().targets.get(target)
        return f"target {target}" if known is None else f"node {known.node_id}"

    async def call(self, target: TargetId, method: Method[Req, Rep], request: Req, **options: Any) -> Rep:
        """Call the process of that target; `options` are those of `ConnectionPool.call`.

        Raises Unavailable if the process has not registered since the manager started, or its node has been removed
        from the cluster, and what the call raises.
        """
        address = self.address_of(target)
        if not address:
            raise Unavailable(f"the storage process of {self.shown(target)} has not registered")
        return await self.observe(target, self._connections.call(address, method, request, **options))

    async def observe(self, target: TargetId, call: Awaitable[T]) -> T:
        """The result of a call that was begun, of which it is noted whether the process of that target was reached."""
        known = self._routing().targets.get(target)
        return await (call if known is None else self.reachability.observe(known.node_id, call))

    def address_of(self, target: TargetId) -> str:
        """Empty if the process of that target has not registered yet, or its node has been removed."""
        routing = self._routing()
        return routing.address_of(target) if target in routing.targets else ""

    def has_room(self, address: str, method: Method[Any, Any], feature: int, size: int, hops: int) -> bool:
        """Whether `begin_optional` would begin such a call now, with so many bytes of payload."""
        return bool(address) and self._connections.has_room(address, method, feature, size, hops)

    def begin_optional(
        self, address: str, method: Method[Req, Rep], request: Req, **options: Any
    ) -> "asyncio.Future[Rep] | None":
        """Begin a call that may be left out, as `ConnectionPool.begin_optional` does; `address` may be empty."""
        return self._connections.begin_optional(address, method, request, **options) if address else None
