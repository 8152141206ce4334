"""The calling side of a connection. A call is a future: it needs no task and no thread, and copies no payload."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from threefs.env.clock import Clock
from threefs.env.net import Buffer, Stream
from threefs.env.shielded_wait import shielded
from threefs.errors import (
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    LimitExceeded,
    Overloaded,
    ProtocolError,
    Stopping,
    ThreefsError,
)
from threefs.rpc import frames, handshake
from threefs.rpc.call_durations import CallDurations
from threefs.rpc.frame_stream import FrameStream
from threefs.rpc.frames import Header
from threefs.rpc.handshake import ClientHandshake, Identity
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.receive_buffers import BodyBudget, unwanted
from threefs.rpc.send_stall import STALL_S, SendStall
from threefs.rpc.send_window import SendWindow
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire.common_pb2 import Hello

#: Called with the reply and the length of its payload. Returns writable views that have exactly that length together.
Sink = Callable[[Any, int], Sequence[memoryview]]
#: Called when the answer waits for a grant, with the function that grants it.
Ready = Callable[[Callable[[], None]], None]

_LATEST_MS = 2**32 - 1


class _Pending:
    """A call that waits for its answer."""

    __slots__ = (
        "deadline",
        "forget",
        "future",
        "hops",
        "index",
        "method",
        "offset",
        "ready",
        "remaining",
        "reply",
        "sink",
        "size",
        "unsent",
        "views",
    )

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        method: Method[Any, Any],
        sink: Sink | None,
        deadline: float,
        forget: Callable[["asyncio.Future[Any]"], None],
        size: int,
        hops: int,
        ready: Ready | None,
    ):
        self.future = future
        self.forget = forget  # called when the future is done by anything but the answer
        future.add_done_callback(forget)
        self.method = method
        self.sink = sink
        self.deadline = deadline
        self.size = size  # bytes of payload that it sends
        self.hops = hops
        self.ready = ready  # None: the answer comes at once, or has been announced
        self.unsent: Callable[[], None] | None = None  # sends it: it waits for its turn
        self.reply: Message | None = None
        self.views: Sequence[memoryview] = ()
        self.remaining = 0  # payload that has no place yet
        self.index = 0
        self.offset = 0

    def place(self, length: int) -> list[memoryview]:
        """The places for the next `length` bytes of payload."""
        if length > self.remaining:
            raise ProtocolError(f"more payload for {self.method} than was announced")
        self.remaining -= length
        places = []
        while length:
            view = self.views[self.index]
            here = min(len(view) - self.offset, length)
            places.append(view if here == len(view) else view[self.offset : self.offset + here])
            self.offset += here
            length -= here
            if self.offset == len(view):
                self.index += 1
                self.offset = 0
        return places


class ClientConnection:
    """A connection to a service, made by `ConnectionPool`. `cluster_id` is the id in the server's HELLO."""

    def __init__(
        self,
        stream: Stream,
        address: str,
        identity: Identity,
        clock: Clock,
        limits: Limits,
        traffic: TrafficClass = TrafficClass.DATA,
        bodies: BodyBudget | None = None,
    ) -> None:
        """`bodies` bounds the answers without their payload that all connections of the process are receiving."""
        self.address = address
        self.cluster_id = ""
        self.program = ""  # as the server calls itself in its HELLO, such as "threefs-meta"
        self.features = 0  # in the server's HELLO (see `handshake.FEATURES`)
        self.outstanding = 0  # calls without an answer
        self.frames = 0  # received; a service that sends none may hang
        self.is_local = stream.is_local
        self.closing = False  # no new calls: the server is stopping, or the connection is closed
        #: Called with the reason when the connection is lost. If this side closes it, the call comes before the close.
        self.on_lost: Callable[[ThreefsError], None] | None = None
        self.durations: CallDurations | None = None  # None: nobody asks for them
        self._handshake = ClientHandshake(identity, stream.service, address, limits=limits, traffic=traffic)
        self._clock = clock
        self._limits = limits
        self._window: SendWindow[_Pending] = SendWindow(limits.calls, limits.inflight_bytes)
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._stall = SendStall()
        self._hello: asyncio.Future[Hello] = self._loop.create_future()
        self._pong: asyncio.Future[None] | None = None
        self._stream = FrameStream(stream, limits, self, read_to_end=True, bodies=bodies)

    async def exchange_hello(self, timeout_s: float) -> None:
        """Exchange HELLO. Raises the error with which the server refuses, DeadlineExceeded, ConnectionLost."""
        self._stream.send(handshake.frame(self._handshake.begin()))
        try:
            async with asyncio.timeout(timeout_s):
                hello = await self._hello
        except TimeoutError:
            error = DeadlineExceeded(f"{self.address} did not send HELLO within {timeout_s:.1f} s")
            self.close(error)
            raise error from None
        self.cluster_id = hello.cluster_id
        self.program = hello.program
        self.features = hello.features
        self._limits = self._limits.for_peer(hello)
        self._window.max_calls = self._limits.calls
        self._window.most_bytes = self._limits.inflight_bytes

    def call(
        self,
        method: Method[Req, Rep],
        request: Req,
        *,
        timeout_s: float,
        payload: Sequence[Buffer] = (),
        sink: Sink | None = None,
        request_id: int = 0,
        hops: int | None = None,
        ready: Ready | None = None,
        sent: Callable[[], None] | None = None,
    ) -> "asyncio.Future[Rep]":
        """Send a call. The payload must not change, and the sink's views belong to the call, until the future is done.

        A call that exceeds the window of the service waits for its turn. A service that forwards a call of another
        process names the number of processes that the call will still pass, `hops` (see `SendWindow`).

        With `ready`, the service announces an answer with much payload before it sends it. Then `ready` is called, and
        the answer comes once that has been granted. Small answers and errors come at once.

        `sent` is called when the kernel has the whole message: what is sent to the service from then on comes behind
        it. It may not be called if the future is done before.

        The future raises the error of the service, or ConnectionLost, DeadlineExceeded, Stopping, LimitExceeded,
        Overloaded (the deadline came before its turn) or ConnectionIdle (the service had closed the idle connection).
        After the last two the call had no effect. Cancelling the future cancels the call at the service.
        """
        future: asyncio.Future[Rep] = self._loop.create_future()
        body = request.SerializeToString()
        length = sum(memoryview(piece).nbytes for piece in payload) if payload else 0
        error = self._refusal(len(body), length)
        if error is not None:
            future.set_exception(error)
            return future
        call_id = self._next_id()
        deadline = self._clock.monotonic() + timeout_s
        flags = frames.forward_flags(hops)
        if ready is not None:
            flags |= frames.WAITS_FOR_GRANT
        hops = hops or 0
        pending = _Pending(future, method, sink, deadline, partial(self._forget, call_id), length, hops, ready)
        self._pending[call_id] = pending
        self.outstanding += 1
        if self.durations is not None:
            self.durations.begin(method, future)
        self._watch(deadline)
        window = self._window
        if not length and not hops and window.calls < window.max_calls:
            window.calls += 1  # `try_take` inlined, because this is the hottest path
            self._send(call_id, pending, flags, body, payload, timeout_s, request_id, sent)
        elif window.try_take(length, hops):
            self._send(call_id, pending, flags, body, payload, timeout_s, request_id, sent)
        else:
            pending.unsent = partial(self._send_late, call_id, pending, flags, body, payload, request_id, sent)
            window.wait(pending, length, hops)
        return future

    def has_room(self, size: int, hops: int) -> bool:
        """Whether a call with so many bytes of payload would be sent at once, without a wait for its turn."""
        return size <= self._limits.payload_bytes and self._window.has_room(size, hops)

    def receive(self) -> None:
        """Process what has come by now: a process that was busy or stopped may not have read it."""
        self._stream.receive()

    def flush(self) -> None:
        """Hand to the kernel now what waits to be sent, before work that holds up the loop."""
        self._stream.flush()

    def _send(
        self,
        call_id: int,
        pending: _Pending,
        flags: int,
        body: bytes,
        payload: Sequence[Buffer],
        timeout_s: float,
        request_id: int,
        sent: Callable[[], None] | None,
    ) -> None:
        remaining_ms = max(0, min(_LATEST_MS, int(timeout_s * 1000)))
        size = pending.size
        head = frames.encode(
            frames.REQUEST, pending.method.number, flags, call_id, body, size, remaining_ms, request_id
        )
        if self.outstanding == 1 and not size and sent is None:
            self._stream.send_now(head)
        else:
            self._stream.send(head, call_id, payload, size, sent, owner=pending.future)

    def _send_late(
        self,
        call_id: int,
        pending: _Pending,
        flags: int,
        body: bytes,
        payload: Sequence[Buffer],
        request_id: int,
        sent: Callable[[], None] | None,
    ) -> None:
        left_s = pending.deadline - self._clock.monotonic()
        self._send(call_id, pending, flags, body, payload, left_s, request_id, sent)

    def _leave_window(self, pending: _Pending) -> None:
        """A call has ended: its place in the window goes to the calls that wait."""
        window = self._window
        if pending.unsent is not None:
            pending.unsent = None
            window.withdraw(pending)
        else:
            window.give(pending.size, pending.hops)
        while window.waiting and (turn := window.next()) is not None:
            send, turn.unsent = turn.unsent, None
            assert send is not None, "a call that waits was not sent"
            if not turn.future.done():  # else it has ended in this step, too: without effect, as its caller was told
                send()

    async def ping(self, timeout_s: float, body: bytes = b"") -> None:
        """Check that the service works; `body` goes there and back. If nothing comes from it for so long, because it
        hangs or its machine is gone, the connection ends for all its calls. Raises ConnectionLost.

        The answer may come behind a large one, which takes its time on a busy link."""
        if self._stream.closed:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if self._pong is None:
            self._pong = self._loop.create_future()
            self._stream.send(frames.encode(frames.PING, body=body))
        pong = self._pong
        while True:
            received = self._stream.received_bytes
            try:
                async with asyncio.timeout(timeout_s):
                    return await shielded(pong)  # other callers may wait for it
            except TimeoutError:
                if self._stream.received_bytes == received:
                    break
        error = ConnectionLost(f"{self.address} has not answered a ping within {timeout_s:.1f} s")
        self.close(error)
        raise error

    def _refusal(self, body_bytes: int, payload_bytes: int) -> ThreefsError | None:
        if self._stream.closed:
            return ConnectionLost(f"the connection to {self.address} is closed")
        if self.closing:
            return Stopping(f"{self.address} is stopping")
        if body_bytes > self._limits.body_bytes or payload_bytes > self._limits.payload_bytes:
            return LimitExceeded(
                f"a call with a body of {body_bytes} and a payload of {payload_bytes} bytes exceeds the limits of "
                f"{self.address}, {self._limits.body_bytes} and {self._limits.payload_bytes} bytes"
            )
        return None

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % (2**32 - 1) + 1
            if self._last_id not in self._pending:
                return self._last_id

    def _forget(self, call_id: int, _: object) -> None:
        """The future is done without an answer: cancel the call at the service, and discard an answer that comes."""
        self.outstanding -= 1
        pending = self._pending.pop(call_id, None)
        if pending is None or self._stream.closed:
            return
        if pending.unsent is None:
            self._stream.discard_payload(call_id)
            self._stream.send(frames.encode(frames.CANCEL, call_id=call_id))
        self._leave_window(pending)

    # ---- deadlines: one timer for all calls

    def _watch(self, deadline: float) -> None:
        if self._sweep is not None:
            if deadline >= self._sweep_at:
                return
            self._sweep.cancel()
        self._sweep_at = deadline
        self._sweep = self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._expire)

    def _expire(self) -> None:
        self._sweep = None
        now = self._clock.monotonic()
        if self._stall.is_over(self._stream.sent_bytes, self._stream.sending, now):
            self.close(ConnectionLost(f"{self.address} has taken nothing for {STALL_S:.0f} s"))
            return
        if any(pending.deadline <= now for pending in self._pending.values()):
            self._stream.receive()  # if this process was busy, answers may have come which it has not read
        earliest = None
        for pending in list(self._pending.values()):
            if pending.future.done():
                continue
            if pending.deadline <= now:
                _fail(pending.future, self._timeout_error(pending))
            elif earliest is None or pending.deadline < earliest:
                earliest = pending.deadline
        if earliest is not None:
            self._watch(earliest)

    def _timeout_error(self, pending: _Pending) -> ThreefsError:
        if pending.unsent is None:
            return DeadlineExceeded(f"{self.address} did not answer {pending.method} within the deadline")
        return Overloaded(
            f"{self.address} had no room for {pending.method} within the deadline: {self._window.calls} calls of this "
            f"process were in flight there, and others waited before it; try again later"
        )

    # ---- received frames

    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        self.frames += 1
        if self._pong is not None:  # every frame shows that the service works
            self._pong.set_result(None)
            self._pong = None
        if header.kind == frames.RESPONSE:
            return self._response(header, body)
        if header.kind == frames.SEGMENT:
            pending = self._pending.get(header.call_id)
            if pending is None or pending.future.done():
                return unwanted(header)
            self._stream.owner = pending.future
            return pending.place(header.payload_bytes)
        if header.kind == frames.READY:
            self._announced(header.call_id)
            return ()
        if header.kind == frames.HELLO and not self._hello.done():
            hello, answer = self._handshake.answer(body)
            if answer:
                self._stream.send(handshake.frame(answer))
            self._hello.set_result(hello)
            return ()
        if header.kind == frames.GOAWAY:
            self._goaway(frames.error_from(body))
            return ()
        if header.kind == frames.PONG:
            return ()
        raise ProtocolError(f"{self.address} sent a frame that only a client sends")

    def _announced(self, call_id: int) -> None:
        pending = self._pending.get(call_id)
        if pending is None or pending.future.done():  # cancelled, or timed out: the service has been told
            return
        ready, pending.ready = pending.ready, None
        if ready is None:
            raise ProtocolError(f"{self.address} announced an answer to {pending.method} that needs no grant")
        ready(partial(self._grant, call_id))

    def _grant(self, call_id: int) -> None:
        pending = self._pending.get(call_id)
        if pending is not None and not pending.future.done() and not self._stream.closed:
            self._stream.send(frames.encode(frames.GRANT, call_id=call_id))

    def _response(self, header: Header, body: bytes) -> Sequence[memoryview]:
        pending = self._pending.get(header.call_id)
        if pending is None or pending.future.done():  # cancelled, or timed out
            return unwanted(header)
        if pending.reply is not None:
            raise ProtocolError(f"{self.address} answered {pending.method} twice")
        if header.flags & frames.FAILED:
            self._finish(header.call_id, frames.error_from(body))
            return unwanted(header)
        try:
            pending.reply = pending.method.reply.FromString(body)
        except DecodeError:
            raise ProtocolError(f"the answer of {self.address} to {pending.method} cannot be parsed") from None
        if not header.payload_bytes:
            self._finish(header.call_id)
            return ()
        if pending.sink is None:
            raise ProtocolError(f"{self.address} answered {pending.method} with payload that was not asked for")
        try:
            pending.views = pending.sink(pending.reply, header.payload_bytes)
        except ThreefsError as error:  # the reply does not match the request
            self._finish(header.call_id, error)
            return unwanted(header)
        if sum(len(view) for view in pending.views) != header.payload_bytes:
            raise ProtocolError(
                f"{self.address} answered {pending.method} with {header.payload_bytes} bytes, which do not fit"
            )
        pending.remaining = header.payload_bytes
        self._stream.owner = pending.future
        return pending.place(header.inline_bytes)

    def payload_done(self, header: Header) -> None:
        pending = self._pending.get(header.call_id)
        if pending is not None and pending.reply is not None and pending.remaining == 0:
            self._finish(header.call_id)

    def _finish(self, call_id: int, error: ThreefsError | None = None) -> None:
        pending = self._pending[call_id]
        future = pending.future
        if future.done():
            return
        del self._pending[call_id]
        self.outstanding -= 1
        window = self._window
        if pending.size or pending.hops or window.waiting:
            self._leave_window(pending)
        else:
            window.calls -= 1
        future.remove_done_callback(pending.forget)  # the callback would take a step of the loop
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(pending.reply)

    def _goaway(self, error: ThreefsError) -> None:
        self.closing = True
        if not isinstance(error, Stopping):  # a stopping server still answers calls that it has begun
            self.close(error)

    def lost(self, error: ThreefsError) -> None:
        if self.on_lost is not None:
            self.on_lost(error)
        self.closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        if not self._hello.done():
            _fail(self._hello, error)
        if self._pong is not None:
            _fail(self._pong, error)
        for pending in list(self._pending.values()):
            if not pending.future.done():
                _fail(pending.future, error)
        self._pending.clear()

    def close(self, error: ThreefsError | None = None) -> None:
        self._stream.close(error or Cancelled("this side has closed the connection"))


def _fail(future: "asyncio.Future[Any]", error: ThreefsError) -> None:
    """Set the error, and retrieve it: asyncio logs an error that its cancelled caller does not retrieve."""
    future.set_exception(error)
    future.exception()
