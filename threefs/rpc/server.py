"""A service on the framed protocol: methods, sessions, start and stop."""

import asyncio
import dataclasses
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import structlog

from threefs.env.buffers import BufferPool
from threefs.env.clock import CLOCK, Clock
from threefs.env.descriptors import most_connections
from threefs.env.eager import Begun
from threefs.env.net import Listener, Net, Stream
from threefs.errors import Overloaded, Stopping
from threefs.rpc import frames
from threefs.rpc.identity import Identity
from threefs.rpc.incoming import BodyRoom
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.preencoded import Answer
from threefs.rpc.reaper import LOOK_S, Reaper
from threefs.rpc.send_queue import Queued
from threefs.rpc.server_connection import Call, Handler, ServerConnection
from threefs.rpc.window import MOST_BEHIND

_DEFAULT_LIMITS = Limits()
_MOST_REFUSED = 64  # connections beyond the bound that are told so; others are closed without a word
_STRANGERS = 4  # the part of the connections that is for peers which have not said HELLO
_LOG = structlog.get_logger()


class Server:
    """Handlers of any number of services on one port. Payload buffers come from `pool`, which handlers may use too."""

    def __init__(self, net: Net, identity: Identity, *, clock: Clock = CLOCK, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.identity = identity
        self.clock = clock
        self.limits = limits
        self.pool = BufferPool()
        self.queued = Queued()
        self.calls_bytes = 0  # of requests in flight
        self.stopping = False
        self.methods: dict[int, Method[Any, Any]] = {}
        self.handlers: dict[int, Handler] = {}
        self._net = net
        self._listener: Listener | None = None
        self._sessions: dict[ServerConnection, None] = {}  # in their order, so that runs of the simulator are equal
        self._strangers: dict[ServerConnection, None] = {}  # those that have not said HELLO, the oldest first
        self._most_connections = most_connections(limits.connections)
        self._most_strangers = max(1, self._most_connections // _STRANGERS)
        self._reaper = Reaper(self._sessions, limits)
        self.bodies = BodyRoom(limits.bodies_bytes, self._reaper.relieve)
        self._looking: asyncio.TimerHandle | None = None
        self._drained: asyncio.Event | None = None

    def add(self, method: Method[Req, Rep], handler: Callable[[Call[Req, Rep]], Awaitable[None] | None]) -> None:
        """Serve `method` by a handler that answers through the call: a plain function runs inline, without a task."""
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

        A `quick` one mostly comes to its end without waiting for anything. It is begun at once, and gets a task only if
        it has to wait; what needs to be in a task (timeouts, task groups) it does not use.
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
            call.reply(await Begun(work, waits_for))

        self.add(method, begin if quick else answer)

    def join(self, cluster_id: str) -> None:
        """From now on only peers of this cluster, and those that do not know theirs yet, are welcome."""
        self.identity = dataclasses.replace(self.identity, cluster_id=cluster_id)

    async def start(self, host: str, port: int) -> str:
        """Listen; the address with the real port. Raises Unavailable."""
        self._listener = await self._net.listen(host, port, self._accept)
        self._look()
        return self._listener.address

    def _accept(self, stream: Stream) -> None:
        if len(self._strangers) >= self._most_strangers:  # who says HELLO does so at once
            next(iter(self._strangers)).link.close(Overloaded("others want to say HELLO"))
        many = len(self._sessions)
        if many >= self._most_connections and not self._reaper.make_way(self.clock.monotonic()):
            if many >= self._most_connections + _MOST_REFUSED:
                stream.close()
                return
            session = ServerConnection(stream, self)
            session.refusal = Overloaded(
                f"{self.identity.program or 'this service'} serves {self._most_connections} connections, and takes no "
                f"more; close some, or try again later"
            )
        else:
            session = ServerConnection(stream, self)
        self._sessions[session] = self._strangers[session] = None

    def greeted(self, session: ServerConnection) -> None:
        """It is certain who the peer is."""
        self._strangers.pop(session, None)

    def _look(self) -> None:
        self._reaper.look(self.clock.monotonic())
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def make_room(self, size: int, *, behind: int | None = None) -> None:
        """Is there memory for so much of a call's payload or answer? Raises Overloaded.

        What services pass on (`behind` is how many more it passes) finds room while clients find none: else both could
        wait for each other. And of that what passes fewer finds room while others find none, as in `Window`.
        """
        most = self.limits.process_bytes
        if behind is None:
            most -= most // 4
        else:
            most -= min(behind, MOST_BEHIND) * most // 16
        if self.pool.lent_bytes + size > most and self.pool.lent:
            self._reaper.relieve()
            if self.pool.lent_bytes + size > most and self.pool.lent:
                raise Overloaded(f"{self.pool.lent_bytes} bytes are held for other calls, there is no room for {size}")

    def check_calls(self, held: int, size: int, *, behind: int | None = None) -> None:
        """Is there room for a request of that size, from a peer that has so much in flight? Raises Overloaded."""
        most = self.limits.calls_bytes
        total = self.calls_bytes + size
        if behind is None:
            fits = total <= most // 2 or (total <= most * 3 // 4 and held <= most // 8)
        else:
            fits = total <= most - min(behind, MOST_BEHIND) * most // 16
        if not fits:
            raise Overloaded(f"requests of {self.calls_bytes} bytes are in flight, {held} of them of this connection")

    def check_queued(self, size: int) -> None:
        """May an answer of that size wait for its peer? Raises Overloaded."""
        most = self.limits.process_bytes
        if self.queued.total_bytes + size > most and self.queued.total_bytes:
            self._reaper.relieve()
            if self.queued.total_bytes + size > most and self.queued.total_bytes:
                raise Overloaded(
                    f"{self.queued.total_bytes} bytes of answers wait to be taken, no room for {size} more"
                )

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let running ones finish within `grace_s`, then close."""
        self.stopping = True
        if self._looking is not None:
            self._looking.cancel()
        if self._listener is not None:
            self._listener.close()
        goodbye = frames.error_body(Stopping("the service is stopping"))
        for session in list(self._sessions):
            session.link.send(frames.encode(frames.GOAWAY, body=goodbye))
        self._drained = asyncio.Event()
        self.call_ended()
        try:
            async with asyncio.timeout(grace_s):
                await self._drained.wait()
        except TimeoutError:
            _LOG.warning("calls cut off by the stop", calls=sum(len(session.calls) for session in self._sessions))
        patience = self.clock.monotonic() + grace_s
        while any(session.link.sending for session in self._sessions) and self.clock.monotonic() < patience:
            await self.clock.sleep(0.005)  # the last answers go out
        running = [call.task for s in self._sessions for call in s.calls.values() if call.task is not None]
        for session in list(self._sessions):
            session.link.close(Stopping("the service is stopping"))
        await asyncio.gather(*running, return_exceptions=True)

    def call_ended(self) -> None:
        if self._drained is not None and not any(session.calls for session in self._sessions):
            self._drained.set()

    def session_ended(self, session: ServerConnection) -> None:
        self._sessions.pop(session, None)
        self._strangers.pop(session, None)
        self.call_ended()

    def log_failure(self, call: Call[Any, Any], error: BaseException) -> None:
        _LOG.error(
            "a call failed unexpectedly",
            method=str(call.method),
            request_id=call.request_id,
            error="".join(traceback.format_exception(error)),
        )
