"""The server of the framed protocol: its methods, its connections, start and stop."""

import asyncio
import dataclasses
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from threefs.env.buffers import BufferPool
from threefs.env.clock import CLOCK, Clock
from threefs.env.eager import StartedCoroutine
from threefs.env.net import Listener, Net, Stream
from threefs.env.process_tuning import max_connections
from threefs.errors import Overloaded, Stopping, Unavailable
from threefs.rpc import frames
from threefs.rpc.connection_reaper import CHECK_INTERVAL_S, ConnectionReaper
from threefs.rpc.connection_turns import Turns
from threefs.rpc.handshake import Identity
from threefs.rpc.held_answers import HeldAnswers
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.preencoded import Answer
from threefs.rpc.receive_buffers import BodyBudget
from threefs.rpc.send_queue import QueuedBytes
from threefs.rpc.send_window import MAX_HOPS
from threefs.rpc.server_connection import Call, Handler, ServerConnection
from threefs.rpc.traffic_class import DEFAULT_DSCP, Dscp, TrafficClass
from threefs.rpc.traffic_counters import TrafficCounters
from threefs.telemetry.library_logging import LibraryLogger

_DEFAULT_LIMITS = Limits()
#: This part of the connections is there for services besides: without heartbeats their targets would leave.
_RESERVED = 4
_UNIDENTIFIED = 4  # and so many may be of peers that have not sent HELLO, or that were refused and do not go
_LOG = LibraryLogger(__name__)


class Server:
    """Serves methods on one port. Payload buffers come from `pool`, which handlers may use too."""

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
        self.clock = clock
        self.limits = limits
        self.dscp = dscp
        self.traffic = {traffic: TrafficCounters() for traffic in TrafficClass}
        self.pool = BufferPool()
        self.queued = QueuedBytes(limits.process_bytes)
        self.turns = Turns(clock.monotonic)
        self.calls_bytes = 0  # of requests in flight
        self.refused_calls = 0  # that were answered before they began
        self.held = HeldAnswers()
        self.stopping = False
        self.methods: dict[int, Method[Any, Any]] = {}
        self.handlers: dict[int, Handler] = {}
        self._net = net
        self._listener: Listener | None = None
        self._connections: dict[ServerConnection, None] = {}  # ordered, so that two runs of the simulator are equal
        self._unidentified: dict[ServerConnection, None] = {}  # those without a place (`_UNIDENTIFIED`), oldest first
        self._max_connections = _max_identified(limits.connections)
        self._max_unidentified = max(1, self._max_connections // _UNIDENTIFIED)
        self._reaper = ConnectionReaper(self._connections, limits)
        self.bodies = BodyBudget(limits.bodies_bytes, self._reaper.free_memory)
        self._check_timer: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    def add(self, method: Method[Req, Rep], handler: Callable[[Call[Req, Rep]], Awaitable[None] | None]) -> None:
        """Serve `method` by a handler that answers through the call. A plain function runs inline, without a task."""
        assert method.number not in self.handlers, f"{method} has a handler already"
        self.methods[method.number] = method
        self.handlers[method.number] = handler

    def serve(
        self,
        method: Method[Req, Rep],
        handler: Callable[[Req], Awaitable[Answer[Rep]]],
        *,
        quick: bool = False,
    ) -> None:
        """Serve `method` by a coroutine function from request to reply.

        A `quick` one mostly ends without waiting. It is started at once, and gets a task only if it has to wait. Before
        its first wait it must use nothing that needs a task (timeouts, task groups).
        """

        async def answer(call: Call[Req, Rep]) -> None:
            call.reply(await handler(call.request))

        def begin(call: Call[Req, Rep]) -> Awaitable[None] | None:
            work = cast("Coroutine[Any, Any, Answer[Rep]]", handler(call.request))
            try:
                waits_for = work.send(None)
            except StopIteration as done:
                call.reply(done.value)
                return None
            return finish(call, work, waits_for)

        async def finish(call: Call[Req, Rep], work: Coroutine[Any, Any, Answer[Rep]], waits_for: Any) -> None:
            call.reply(await StartedCoroutine(work, waits_for))

        self.add(method, begin if quick else answer)

    def join(self, cluster_id: str) -> None:
        """Accept only peers of this cluster from now on, and peers that do not know their cluster yet."""
        self.identity = dataclasses.replace(self.identity, cluster_id=cluster_id)

    async def start(self, host: str, port: int) -> str:
        """Listen. Returns the address with the real port. Raises Unavailable."""
        self._listener = await self._net.listen(host, port, self._accept)
        self._check_peers()
        return self._listener.address

    def _accept(self, stream: Stream) -> None:
        if len(self._unidentified) >= self._max_unidentified:  # a good peer sends HELLO at once
            next(iter(self._unidentified)).stream.close(Overloaded("too many peers have not sent HELLO"))
        connection = ServerConnection(stream, self)
        self._connections[connection] = self._unidentified[connection] = None

    def check_place(self, *, is_service: bool) -> None:
        """Raises Overloaded if there is no place for one more connection, and none that is idle."""
        many, most = self._identified, self._max_connections
        if many < most or (is_service and many < most + most // _RESERVED):
            return
        if self._reaper.idlest(self.clock.monotonic()) is None:
            raise Overloaded(
                f"{self.identity.program or 'this service'} has {most} connections, its maximum; close some, or try "
                "again later"
            )

    def identified(self, connection: ServerConnection, *, is_service: bool) -> None:
        """The identity of the peer is certain. Raises Overloaded. Only now it takes a place, perhaps that of an idle
        one: peers without the key would use up all."""
        self.check_place(is_service=is_service)
        if self._identified >= self._max_connections:
            self._reaper.free_connection(self.clock.monotonic())
        self._unidentified.pop(connection, None)
        connection.has_place = True

    def leaves(self, connection: ServerConnection) -> None:
        """The connection is asked to end. Its place is free at once: several may be wanted before it has gone."""
        if connection.has_place:
            connection.has_place = False
            self._unidentified[connection] = None

    @property
    def _identified(self) -> int:
        return len(self._connections) - len(self._unidentified)

    def check_takes_calls(self, now: float) -> None:
        """Raises Stopping; Unavailable before it has started, and after a suspension until the connections of before
        are gone."""
        if self.stopping:
            raise Stopping("the service is stopping")
        if not self.handlers:
            raise Unavailable("the service is starting")
        if self._reaper.is_late(now):
            raise Unavailable("this service was suspended, and takes only what is sent now: connect again")

    def _check_peers(self) -> None:
        # First: a service whose check has failed would take itself for suspended, and refuse all calls from then on.
        self._check_timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._check_peers)
        self._reaper.check(self.clock.monotonic())

    def make_room(self, size: int, *, hops: int | None = None) -> None:
        """Raises Overloaded unless there is memory for `size` more bytes of payload or answer.

        Part of the memory is only for calls that services forward (those with `hops`). Otherwise forwarded calls and
        calls of clients could wait for each other. Among forwarded calls, part is only for those with fewer hops, as in
        `SendWindow`.
        """
        most = self.limits.process_bytes
        if hops is None:
            most -= most // 4
        else:
            most -= min(hops, MAX_HOPS) * most // 16
        if self.pool.lent_bytes + size > most and self.pool.lent:
            self._reaper.free_memory()
            if self.pool.lent_bytes + size > most and self.pool.lent:
                raise Overloaded(f"other calls hold {self.pool.lent_bytes} bytes, so there is no room for {size} bytes")

    def check_calls(self, held: int, size: int, *, hops: int | None = None, is_service: bool = False) -> None:
        """Raises Overloaded unless there is room for a request of `size` bytes, of a peer with `held` bytes in flight.

        Services have a little room that clients do not have, for heartbeats and registrations, and less than every call
        that is forwarded.
        """
        most = self.limits.calls_bytes
        total = self.calls_bytes + size
        if hops is None:
            share = 25 if is_service else 24
            fits = total <= most // 2 or (total <= most * share // 32 and held <= most // 8)
        else:
            fits = total <= most - min(hops, MAX_HOPS) * most // 16
        if not fits:
            raise Overloaded(
                f"requests of {self.calls_bytes} bytes are in flight, {held} of them of this connection, so there is no"
                f" room for {size} bytes"
            )

    def check_queued(self, size: int) -> None:
        """Raises Overloaded unless there is room for an answer of `size` bytes that waits for its peer."""
        most = self.limits.process_bytes
        if self.queued.total_bytes + size > most and self.queued.total_bytes:
            self._reaper.free_memory()
            if self.queued.total_bytes + size > most and self.queued.total_bytes:
                raise Overloaded(
                    f"answers of {self.queued.total_bytes} bytes wait for their peers; there is no room for {size} more"
                )

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let running calls finish within `grace_s`, then close."""
        self.stopping = True
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._listener is not None:
            self._listener.close()
        goodbye = frames.error_body(Stopping("the service is stopping"))
        for connection in list(self._connections):
            connection.stream.send(frames.encode(frames.GOAWAY, body=goodbye))
        self._drained = asyncio.Event()
        self.call_ended()
        try:
            async with asyncio.timeout(grace_s):
                await self._drained.wait()
        except TimeoutError:
            _LOG.warning(
                "the stop has cancelled calls", calls=sum(len(connection.calls) for connection in self._connections)
            )
        patience = self.clock.monotonic() + grace_s
        while any(connection.stream.sending for connection in self._connections) and self.clock.monotonic() < patience:
            await self.clock.sleep(0.005)  # the last answers go out
        running = [call.task for s in self._connections for call in s.calls.values() if call.task is not None]
        for connection in list(self._connections):
            connection.stream.close(Stopping("the service is stopping"))
        await asyncio.gather(*running, return_exceptions=True)

    def call_ended(self) -> None:
        if self._drained is not None and not any(connection.calls for connection in self._connections):
            self._drained.set()

    def connection_ended(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)
        self._unidentified.pop(connection, None)
        connection.counters.discard(connection)
        self.call_ended()

    def log_failure(self, call: Call[Any, Any], error: BaseException) -> None:
        _LOG.error(
            "a call failed unexpectedly",
            method=str(call.method),
            request_id=call.request_id,
            error="".join(traceback.format_exception(error)),
        )


def _max_identified(wanted: int) -> int:
    """How many connections of clients to accept, at most `wanted`: their reserve and the peers that have not sent HELLO
    need descriptors as well."""
    most = wanted + wanted // _RESERVED + wanted // _UNIDENTIFIED
    allowed = max_connections(most)
    return wanted if allowed == most else max(1, allowed * wanted // most)
