"""Calls of the meta service, repeated until they are answered or time out. All attempts of a mutation have one
identity.

Any meta service can answer: `service_failover` selects the one for an attempt. Calls of the same turn of the loop share
a message (`coalescer`).
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from threefs.backoff import Backoff
from threefs.cluster import routing_watcher
from threefs.cluster.routing_watcher import RoutingSource
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import Cancelled, OutcomeUnknown, Retry, ThreefsError, Unavailable
from threefs.ids import ClientId
from threefs.routing import EMPTY, Routing
from threefs.rpc.coalescer import Coalescer
from threefs.rpc.methods import Method, Rep, Req
from threefs.telemetry.library_logging import LibraryLogger
from threefs.telemetry.wait_log import WaitLog
from threefs.wire import meta_pb2 as pb
from threefs_client.metadata.call_batching import RETRY_ALONE, SHARED, Key, Single, caller_key, key_of, send_batch
from threefs_client.metadata.service_failover import Connection, Connections, ServiceFailover

_BACKOFF = Backoff(0.02, 1.0)
#: For connecting with a service that is in no routing: its machine may be gone, and another one registers soon.
_UNLISTED_CONNECT_S = 0.6

_LOG = LibraryLogger(__name__)

_HAS_CALLER: dict[type[Any], bool] = {}  # type of request -> whether it has a field `caller`


class MetaClient:
    def __init__(
        self,
        peers: Connections,
        cluster: RoutingSource,
        client: ClientId,
        caller: pb.Caller,
        *,
        attempt_timeout_s: float,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        """`caller` is the default for calls that name no caller."""
        self.caller = caller
        self._cluster = cluster
        self._client = bytes(client)
        self._attempt_timeout_s = attempt_timeout_s
        self._clock = clock
        self._random = random
        self._request = 0
        self._closing = False
        self._wait_log = WaitLog(
            _LOG,
            waits="no meta service answers: calls are repeated until their timeout",
            goes_on="a meta service answers again",
        )
        self._routing = EMPTY  # as of the last call, with the addresses in it
        self._addresses: Sequence[str] = ()
        self._coalescer = Coalescer(partial(send_batch, self))
        self._failover = ServiceFailover(peers, lambda: self._addresses_in(cluster.routing), clock=clock, random=random)

    def mutation(self, count: int = 1) -> pb.Mutation:
        """A new mutation identity, or the first of `count`. A repeat under the same identity gets the first result."""
        return pb.Mutation(**self.identity(count))

    def identity(self, count: int = 1) -> dict[str, Any]:
        """The fields of a new identity. To put them into a request is cheaper than to copy a message."""
        first = self._request + 1
        self._request += count
        return {"client": self._client, "request": first}

    async def call(
        self, method: Method[Req, Rep], request: Req, *, timeout_s: float, caller: pb.Caller | None = None
    ) -> Rep:
        """As `send`. The call may share a message with other calls of the same turn of the loop."""
        if method not in SHARED:
            return await self.send(method, request, timeout_s=timeout_s, caller=caller)
        coalescer = self._coalescer
        if coalescer.try_bypass():
            try:
                return await self.send(method, request, timeout_s=timeout_s, caller=caller)
            finally:
                coalescer.bypass_finished()
        key = key_of(method, request, caller, timeout_s)
        if key is None:
            return await self.send(method, request, timeout_s=timeout_s, caller=caller)
        reply = await coalescer.add(key, (method, request))
        if reply is RETRY_ALONE:
            return await self.send(method, request, timeout_s=timeout_s, caller=caller)
        found: Rep = reply
        return found

    async def send_changes(
        self, changes: list[Single], *, timeout_s: float, caller: pb.Caller | None = None
    ) -> list[Any]:
        """Send changes in one message. Returns the reply of each, or its error."""
        outcomes = await send_batch(self, Key(True, False, caller_key(caller), timeout_s), changes)
        for number, (method, request) in enumerate(changes):
            if outcomes[number] is RETRY_ALONE:
                outcomes[number] = await self.send(method, request, timeout_s=timeout_s, caller=caller)
        return outcomes

    async def send(
        self, method: Method[Req, Rep], request: Req, *, timeout_s: float, caller: pb.Caller | None = None
    ) -> Rep:
        """Repeat the call until it is answered, or until the timeout. A mutation that may have been applied by then
        ends in OutcomeUnknown.

        Permissions are those of `caller`, by default the caller of this object.
        """
        _set_caller(self.caller if caller is None else caller, request)
        deadline = self._clock.monotonic() + timeout_s
        maybe_applied = False
        attempt = 0
        while True:
            routing = self._cluster.routing
            addresses = self._addresses_in(routing)
            address = self._failover.choose(addresses, attempt) if addresses else ""
            try:
                left_s = min(self._attempt_timeout_s, max(0.001, deadline - self._clock.monotonic()))
                connection = (self._failover.live(address) if address else None) or await self._connect(address, left_s)
                reply: Rep = await connection.call(method, request, timeout_s=left_s)
                self._wait_log.answered(address=address)
                return reply
            except ThreefsError as error:
                if self._closing:
                    raise Cancelled("the connection is being closed") from None
                maybe_applied = maybe_applied or error.retry is Retry.UNKNOWN
                if error.retry is Retry.NEVER:
                    raise
                if self._clock.monotonic() >= deadline:
                    raise _final_error(error, method, request, maybe_applied) from None
                self._wait_log.failed(error, deadline - timeout_s, self._clock.monotonic(), timeout_s)
            if maybe_applied:
                _mark_repeat(request)
            self._failover.record_failure(address)
            attempt += 1
            if attempt >= len(addresses):
                await self._pause(routing.version, attempt, deadline)

    def _addresses_in(self, routing: Routing) -> Sequence[str]:
        if routing is not self._routing:
            self._routing = routing
            # A service that only the manager cannot reach is in no routing, and still renews leases.
            self._addresses = routing.meta_addresses() or self._addresses
        return self._addresses

    async def _connect(self, address: str, timeout_s: float) -> Connection:
        await asyncio.sleep(0)  # a coroutine that was started eagerly gets its task here, for connecting and pauses
        if not address:
            raise Unavailable("no meta service has registered with the manager; start one, or a cluster: `threefs up`")
        if not self._cluster.routing.meta_addresses():
            timeout_s = min(timeout_s, _UNLISTED_CONNECT_S)
        return await self._failover.connect(address, timeout_s)

    async def close(self) -> None:
        self._closing = True
        await self._coalescer.close()
        await self._failover.close()

    async def _pause(self, version: int, attempt: int, deadline: float) -> None:
        pause_s = min(_BACKOFF.pause_s(attempt, self._random), deadline - self._clock.monotonic())
        await routing_watcher.pause(self._cluster, version, pause_s, self._clock)


def _set_caller(caller: pb.Caller, request: Any) -> None:
    kind = type(request)
    has_caller = _HAS_CALLER.get(kind)
    if has_caller is None:
        has_caller = _HAS_CALLER[kind] = "caller" in kind.DESCRIPTOR.fields_by_name
    if has_caller:
        request.caller.CopyFrom(caller)


def _is_mutation(request: Any) -> bool:
    return "mutation" in request.DESCRIPTOR.fields_by_name and request.HasField("mutation")


def _mark_repeat(request: Any) -> None:
    """An attempt of this mutation may still arrive at a service that hung. If the next one fails, it must fail, too."""
    if _is_mutation(request):
        request.mutation.again = True


def _final_error(error: ThreefsError, method: Method[Any, Any], request: Any, maybe_applied: bool) -> ThreefsError:
    if maybe_applied and _is_mutation(request):
        return OutcomeUnknown(f"{method} was not confirmed, it may or may not have been applied; last error: {error}")
    return error
