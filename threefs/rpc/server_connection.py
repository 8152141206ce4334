"""The answering side of a connection: one peer's calls, from their first byte to the last byte of the answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from google.protobuf.message import DecodeError

from threefs.env.net import Buffer, Stream
from threefs.errors import (
    DeadlineExceeded,
    Internal,
    NotAuthorised,
    Overloaded,
    ProtocolError,
    ThreefsError,
    UnknownMethod,
)
from threefs.rpc import frames, handshake
from threefs.rpc.connection_reaper import Progress
from threefs.rpc.frame_stream import FrameStream
from threefs.rpc.frames import UNGRANTED_BYTES, Header
from threefs.rpc.handshake import ServerHandshake
from threefs.rpc.held_answers import HeldOfConnection
from threefs.rpc.methods import Method, Rep, Req
from threefs.rpc.preencoded import Answer
from threefs.rpc.receive_buffers import unwanted
from threefs.rpc.send_queue import Outgoing
from threefs.rpc.traffic_class import TrafficClass, of_number
from threefs.wire.common_pb2 import Hello

if TYPE_CHECKING:
    from threefs.rpc.server import Server

#: Answers by `call.reply` or `call.fail`, now or, when it is a coroutine function, later.
Handler = Callable[["Call[Any, Any]"], Awaitable[None] | None]

_NOTHING = memoryview(b"")
_SMALL_ANSWER_BYTES = 16 << 10  # all calls of a connection may have such ones at a time
_LARGE_ANSWER_BYTES = 64 << 10  # there is always room for a smaller one, unless others wait for the same peer
_CALL_BYTES = 2 << 10  # what a call takes beside its request


class Call(Generic[Req, Rep]):
    """One call being answered.

    `payload` lies in a pooled, page-aligned buffer. It is valid until the handler has finished and has replied.
    `deadline` is a reading of the server's monotonic clock.
    """

    __slots__ = (
        "_buffer",
        "_connection",
        "_header",
        "_held",
        "_held_bytes",
        "_placed",
        "_reserved",
        "_running",
        "answered",
        "began",
        "counted_bytes",
        "deadline",
        "held_until",
        "lost",
        "method",
        "payload",
        "peer",
        "receive_by",
        "received_bytes",
        "request",
        "request_id",
        "task",
    )

    def __init__(
        self,
        connection: "ServerConnection",
        header: Header,
        method: Method[Req, Rep],
        request: Req,
        began: float,
        request_bytes: int,
    ):
        self.method = method
        self.request = request
        self.counted_bytes = request_bytes + _CALL_BYTES  # of memory
        self.began = began
        self.deadline = began + header.deadline_ms / 1000
        self.receive_by = self.deadline  # of its whole payload
        self.request_id = header.request_id
        self.peer = connection.hello
        self.payload = _NOTHING
        self.answered = False
        self.lost: ThreefsError | None = None  # why no answer can be sent any more
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._header = header
        self._buffer: memoryview | None = None
        self._reserved = 0
        self._placed = self.received_bytes = 0  # bytes of payload that have a place, and those that have come to it
        self._running = True
        self._held: Outgoing | None = None  # the answer, which waits for a grant
        self._held_bytes = 0  # counted for it since its memory was reserved
        self.held_until = 0.0

    def remaining_s(self) -> float:
        return self.deadline - self._connection.server.clock.monotonic()

    def make_room(self, size: int, *, hops: int | None = None) -> None:
        """Reserve memory for the answer, before it is taken. `hops` is not None if a service forwards the call: the
        number of processes that it will still pass. Raises Overloaded."""
        self._connection.server.make_room(size, hops=hops)
        if self._header.flags & frames.WAITS_FOR_GRANT and size > UNGRANTED_BYTES:
            self._reserve_hold(size)
        if size > _SMALL_ANSWER_BYTES:
            self._reserved += size
            self._connection.stream.reserve(size)

    def reply(
        self, message: Answer[Rep], payload: Sequence[Buffer] = (), sent: Callable[[], None] | None = None
    ) -> None:
        """Answer the call. The payload must not change until `sent` is called: then the kernel has all of it, or the
        peer is gone."""
        body = message.SerializeToString()
        length = sum(memoryview(piece).nbytes for piece in payload) if payload else 0
        held = self._header.flags & frames.WAITS_FOR_GRANT and length > UNGRANTED_BYTES
        if held or max(length + len(body), self._connection.queued_bytes) > _LARGE_ANSWER_BYTES:
            try:
                self._connection.server.check_queued(length + len(body))
                if held and length > self._held_bytes:
                    self._reserve_hold(length - self._held_bytes)
            except Overloaded as error:
                if sent is not None:
                    sent()
                self.fail(error)
                return
        self._answer(0, body, payload, length, sent)

    def fail(self, error: ThreefsError) -> None:
        self._answer(frames.FAILED, frames.error_body(error), (), 0, None)

    @property
    def traffic(self) -> TrafficClass:
        """The class of the connection on which it came."""
        return self._connection.traffic

    @property
    def hops(self) -> int | None:
        """How many processes it will still pass behind this one; None if no service forwards it."""
        return frames.hops(self._header)

    def _answer(
        self, flags: int, body: bytes, payload: Sequence[Buffer], length: int, sent: Callable[[], None] | None
    ) -> None:
        assert not self.answered, f"{self.method} was answered twice"
        self.answered = True
        header = self._header
        head = frames.encode(frames.RESPONSE, header.method, flags, header.call_id, body, length, 0, header.request_id)
        stream = self._connection.stream
        if not length and sent is None and len(self._connection.calls) == 1:
            stream.send_now(head)
        elif header.flags & frames.WAITS_FOR_GRANT and length > UNGRANTED_BYTES and not stream.closed:
            self._hold(head, payload, length, sent)
        else:
            stream.send(head, header.call_id, payload, length, sent)
        if not self._running and self._held is None:
            self._connection.end(self)

    def handled(self) -> None:
        """The handler has finished."""
        self._running = False
        if self.answered and self._held is None:
            self._connection.end(self)

    # ---- an answer that waits for a grant

    def _reserve_hold(self, size: int) -> None:
        self._connection.held.reserve(size, self._connection.server.limits.held_bytes)
        self._held_bytes += size

    def _hold(self, head: bytes, payload: Sequence[Buffer], length: int, sent: Callable[[], None] | None) -> None:
        """Announce the answer. It does not count as queued: then its grant would not be received."""
        connection, server = self._connection, self._connection.server
        self._held = Outgoing(head, self.call_id, [memoryview(piece) for piece in payload], length, sent, None)
        self.held_until = min(self.deadline, server.clock.monotonic() + server.limits.grant_s)
        connection.stream.reserve(-self._reserved)
        self._reserved = 0
        connection.held.announce(self)
        connection.stream.send(frames.encode(frames.READY, call_id=self.call_id))

    def _unhold(self) -> Outgoing:
        held, self._held = self._held, None
        assert held is not None, "only an answer that waits is granted or dropped"
        return held

    def grant(self) -> None:
        """Send the answer that waits."""
        held = self._unhold()
        self._connection.stream.send(held.head, held.call_id, held.views, held.remaining, held.sent)
        if not self._running:
            self._connection.end(self)

    def drop(self, error: ThreefsError | None) -> None:
        """Give up the answer that waits, and tell the peer the error."""
        if (sent := self._unhold().sent) is not None:
            sent()
        if error is not None:
            self._connection.refuse_call(self._header, error)
        if not self._running:
            self._connection.end(self)

    # ---- receiving the payload, by the connection only

    def receive_into(self, buffer: memoryview, by: float) -> None:
        self._buffer = buffer
        self.receive_by = min(self.deadline, by)
        self.payload = buffer[: self._header.payload_bytes]

    def place(self, length: int) -> memoryview:
        start = self._placed
        if start + length > len(self.payload):
            raise ProtocolError(f"more payload for {self.method} than was announced")
        self._placed += length
        return self.payload[start : start + length]

    @property
    def complete(self) -> bool:
        return self.received_bytes == len(self.payload)

    @property
    def call_id(self) -> int:
        return self._header.call_id

    @property
    def payload_bytes(self) -> int:
        return self._header.payload_bytes

    def take_buffer(self) -> memoryview | None:
        """Hand the payload's buffer over to the caller, and release the memory that was reserved for the answer."""
        if self._reserved:
            self._connection.stream.reserve(-self._reserved)
        if self._held_bytes:
            self._connection.held.release(self._held_bytes)
            self._held_bytes = 0
        buffer, self._buffer = self._buffer, None
        self.payload = _NOTHING
        return buffer


class ServerConnection:
    """The connection of one peer, at the server."""

    def __init__(self, stream: Stream, server: "Server") -> None:
        self.server = server
        self.hello: Hello | None = None  # None until the identity of the peer is certain
        self.has_place = False  # as `server` says
        self.traffic = TrafficClass.DATA  # until HELLO names another one
        self.counters = server.traffic[self.traffic]
        self._socket = stream
        self._handshake = ServerHandshake(stream.service, limits=server.limits)
        self.calls: dict[int, Call[Any, Any]] = {}
        self.progress = Progress(server.clock.monotonic())
        self._inflight_bytes, self._calls_bytes, self._is_service = 0, 0, False
        self.held = HeldOfConnection(server.held)
        limits, turns, queued = server.limits, server.turns, server.queued
        before = limits.before_hello()
        self.stream = FrameStream(stream, before, self, queued, limits.queued_bytes, turns, bodies=server.bodies)
        self._hello_timer = asyncio.get_running_loop().call_later(server.limits.hello_s, self._no_hello)

    # ---- progress, for the reaper

    @property
    def sent_bytes(self) -> int:
        return self.stream.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self.stream.received_bytes

    @property
    def queued_bytes(self) -> int:
        return self.stream.queued_bytes

    @property
    def expected_bytes(self) -> int:
        if not self._inflight_bytes:
            return self.stream.expected_bytes
        awaited = sum(call.payload_bytes for call in self.calls.values() if not call.complete)
        return max(awaited, self.stream.expected_bytes)

    @property
    def busy(self) -> bool:
        return bool(self.calls)

    def drop_late_calls(self, now: float) -> None:
        """End calls whose payload or grant has not come in time, because they hold memory for it."""
        self.held.expire(now)
        if not self._inflight_bytes:
            return
        for call in [call for call in self.calls.values() if not call.complete and now >= call.receive_by]:
            self.stream.discard_payload(call.call_id)
            call.fail(DeadlineExceeded(f"the payload of {call.method} did not come in time"))
            self.end(call)

    def evict(self, error: ThreefsError) -> None:
        if self.stream.sending:  # the peer does not read, so an error would not reach it
            self.stream.close(error)
            return
        if not self.busy:
            self.server.leaves(self)
        self.stream.refuse(error)

    def _no_hello(self) -> None:
        self.stream.refuse(ProtocolError(f"no HELLO came within {self.server.limits.hello_s:g} s"))

    # ---- received frames

    def frame(self, header: Header, body: bytes) -> Sequence[memoryview]:
        if self.hello is None:
            self._take_hello(header, body)
            return ()
        if header.kind == frames.REQUEST:
            return self._request(header, body)
        if header.kind == frames.SEGMENT:
            call = self.calls.get(header.call_id)
            if call is None or call.complete:  # the call was refused or cancelled before all of it came
                return unwanted(header)
            return [call.place(header.payload_bytes)]
        if header.kind == frames.GRANT:
            if not self.held.grant(header.call_id) and header.call_id in self.calls:
                raise ProtocolError(f"a GRANT for call {header.call_id}, whose answer was not announced")
            return ()
        if header.kind == frames.CANCEL:
            self._cancel(header.call_id)
            return ()
        if header.kind == frames.GOAWAY:
            self.stream.close(frames.error_from(body))
            return ()
        if header.kind == frames.PING:
            # While frames are being sent, they show that this side works; and a peer that never reads gets no more.
            if not self.stream.sending:
                self.stream.send(frames.encode(frames.PONG, body=body[: frames.PROBE_BYTES]))
            return ()
        raise ProtocolError("a frame that only a server sends")

    def _take_hello(self, header: Header, body: bytes) -> None:
        if header.kind != frames.HELLO:
            raise ProtocolError("the first frame of a connection must be HELLO")
        self.server.check_place(is_service=handshake.is_of_service(body))  # by its own word, until it has proven it
        hello, answer = self._handshake.take(body, self.server.identity)
        if hello is not None:
            self._is_service = self.stream.goes_first = hello.program in handshake.SERVICES
            self.server.identified(self, is_service=self._is_service)
            self.hello = hello
            self._hello_timer.cancel()
            self._join_class(of_number(hello.traffic_class))
            self.stream.limits = self.server.limits
        if answer:
            self.stream.send(handshake.frame(answer))

    def _join_class(self, traffic: TrafficClass) -> None:
        self.traffic = traffic
        self.counters = self.server.traffic[traffic]
        self.counters.add(self)
        self._socket.mark(self.server.dscp.mark(traffic))

    def _request(self, header: Header, body: bytes) -> Sequence[memoryview]:
        if header.call_id in self.calls:
            raise ProtocolError(f"call {header.call_id} is in flight already")
        try:
            call = self._admit(header, body)
        except (ProtocolError, NotAuthorised):
            raise
        except ThreefsError as error:
            self.server.refused_calls += 1
            self.refuse_call(header, error)
            return unwanted(header)
        if self.stream.closed:  # this connection was evicted to make room
            return ()
        if header.payload_bytes:  # before anything is counted: the system may have no memory
            call.receive_into(self.server.pool.take(header.payload_bytes), call.began + self.server.limits.payload_s)
        self.calls[header.call_id] = call
        self.counters.begin_call(call.began)
        self._count(call.counted_bytes)
        if not header.payload_bytes:
            self._run(call)
            return ()
        self._inflight_bytes += header.payload_bytes
        return [call.place(header.inline_bytes)]

    def _count(self, size: int) -> None:
        self._calls_bytes += size
        self.server.calls_bytes += size

    def _admit(self, header: Header, body: bytes) -> Call[Any, Any]:
        limits, now = self.server.limits, self.server.clock.monotonic()
        self.server.check_takes_calls(now)
        if len(self.calls) >= limits.calls:
            raise Overloaded(f"{len(self.calls)} calls of this connection are in flight")
        if self._inflight_bytes + header.payload_bytes > limits.inflight_bytes:
            raise Overloaded(
                f"{self._inflight_bytes} bytes of payload of this connection are in flight, and {header.payload_bytes} "
                f"would come with this call: more than {limits.inflight_bytes}"
            )
        method = self.server.methods.get(header.method)
        if method is None:
            raise UnknownMethod(f"{self.server.identity.program or 'this service'} has no method {header.method}")
        size = method.request_bytes(body)
        self.server.check_calls(self._calls_bytes, size, hops=frames.hops(header), is_service=self._is_service)
        try:
            request = method.request.FromString(body)
        except DecodeError:
            raise ProtocolError(f"the request of {method} cannot be parsed") from None
        if header.payload_bytes:
            self.server.make_room(header.payload_bytes, hops=frames.hops(header))
        return Call(self, header, method, request, now, size)

    def refuse_call(self, header: Header, error: ThreefsError) -> None:
        body = frames.error_body(error)
        self.stream.send(frames.encode(frames.RESPONSE, header.method, frames.FAILED, header.call_id, body))

    def payload_done(self, header: Header) -> None:
        if (call := self.calls.get(header.call_id)) is not None and not call.complete:  # else nobody wants it
            call.received_bytes += header.inline_bytes
            if call.complete and call.task is None and not call.answered:
                self._run(call)

    # ---- running

    def _run(self, call: Call[Any, Any]) -> None:
        try:
            later = self.server.handlers[call.method.number](call)
        except (Exception, asyncio.CancelledError) as error:
            self._failed(call, error)
        else:
            if later is not None:
                call.task = asyncio.ensure_future(later)
                call.task.add_done_callback(lambda task: self._ended(call, task))
                return
        call.handled()

    def _ended(self, call: Call[Any, Any], task: "asyncio.Task[None]") -> None:
        if task.cancelled() and task.cancelling():
            call.answered = True  # the peer has cancelled the call, or is gone
        elif task.cancelled():  # by a cancellation that was meant for something it waited for
            self._failed(call, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self._failed(call, error)
        call.handled()

    def _failed(self, call: Call[Any, Any], error: BaseException) -> None:
        if not isinstance(error, ThreefsError):
            self.server.log_failure(call, error)
            error = Internal(f"{call.method} failed: {type(error).__name__}")
        if not call.answered:
            call.fail(error)

    def _cancel(self, call_id: int) -> None:
        call = self.calls.get(call_id)
        if call is None or self.held.cancel(call_id):
            return
        if call.task is not None:
            _stop(call.task)
        elif not call.complete:  # the rest of its payload will not come
            self.stream.discard_payload(call_id)
            self.end(call)

    def end(self, call: Call[Any, Any]) -> None:
        """The call is over: its handler has finished, and its answer is given."""
        if self.calls.pop(call.call_id, None) is not None:
            self.counters.end_call(call.method.name, self.server.clock.monotonic() - call.began)
            self._count(-call.counted_bytes)
        buffer = call.take_buffer()
        if buffer is not None:
            self._inflight_bytes -= call.payload_bytes
            self.server.pool.give(buffer)
        if self.stream.closed and not self.calls:
            self.server.connection_ended(self)
        else:
            self.server.call_ended()

    def lost(self, error: ThreefsError) -> None:
        self._hello_timer.cancel()
        self.held.cancel_all()
        for call in list(self.calls.values()):
            call.lost = error
            if call.task is not None:
                _stop(call.task)
            elif not call.complete:
                self.end(call)
        if not self.calls:  # otherwise work that cannot be cancelled goes on, and the server's stop waits for it
            self.server.connection_ended(self)


def _stop(task: "asyncio.Task[None]") -> None:
    """Cancel the task after its first step. Before that, a coroutine that was started without a task (`env/eager.py`)
    would not be cancelled."""
    asyncio.get_running_loop().call_soon(task.cancel)
