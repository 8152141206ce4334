"""The gRPC binding of the control plane: the same methods and handlers as over frames, with health and reflection.

Services and tools in other languages use it. The client library must not import it, because gRPC does not survive a
fork. In a cluster with a key, every call needs a proof of it (`grpc_proofs.py`), calls of health and reflection too.

A server that was suspended takes no call of before, as over frames (`connection_reaper.py`). Its caller has given it up
long ago, and may have ended, or may have asked for the opposite since: a late heartbeat would be a sign of life of a
process that is dead. gRPC has no way to close single connections, so the server begins anew.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from threefs.background import BackgroundTasks
from threefs.env import ports
from threefs.env.clock import CLOCK, Clock
from threefs.env.process_tuning import max_control_connections
from threefs.errors import (
    DeadlineExceeded,
    Internal,
    NotAuthorised,
    ProtocolError,
    ThreefsError,
    Unavailable,
    error_of,
)
from threefs.rpc import grpc_proofs
from threefs.rpc.connection_reaper import CHECK_INTERVAL_S, SUSPENDED_S
from threefs.rpc.grpc_proofs import Gate, Proof
from threefs.rpc.handshake import NEEDS_KEY
from threefs.rpc.limits import Limits
from threefs.rpc.methods import Method, Rep, Req
from threefs.telemetry.histogram import Histogram

#: Trailing metadata of a failed call, from which the caller makes an error of the same class.
_CODE_KEY = "threefs-error-code"
_CHALLENGE_KEY = "threefs-challenge"
_PROOF_KEY = "threefs-proof"  # in the metadata of a call, and of its answer
_MAX_REPLY_BYTES = 16 << 20  # a routing of thousands of disks
_MAX_REQUEST_BYTES = 4 << 20  # a plan of thousands of disks

#: A server changes its challenge every few minutes, so the second try has a good one. What changes it each time would
#: hold the caller for ever.
_TRIES = 3

_DEFAULT_LIMITS = Limits()
_LOG = structlog.get_logger()
#: For which a connection may have no call. Nodes call every two seconds, and other callers connect anew by themselves.
_IDLE_S = 60.0
#: In flight on one connection; a client of gRPC keeps more back. A tool that waits for the next routing has one for
#: that, and a few beside it. Each takes 12 KiB once its header has come, also that of a peer that reads no refusals.
_MAX_CALLS = 32


def _options(limits: Limits) -> list[tuple[str, int]]:
    """Whoever can reach the port may connect, with or without the key. Without bounds, connections that say nothing
    would use up the descriptors of the process, and calls its memory.

    The calls of all connections together have no bound: what exceeds it would have to be answered too, and a few
    connections that read nothing would keep out everybody."""
    return [
        ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _MAX_CALLS),
        ("grpc.max_allowed_incoming_connections", max_control_connections(limits.connections)),
        ("grpc.server_handshake_timeout_ms", int(limits.hello_s * 1000)),
        ("grpc.http2.settings_timeout", int(limits.hello_s * 1000)),
        ("grpc.max_connection_idle_ms", int(min(_IDLE_S, limits.idle_s) * 1000)),
    ]


def _bind(server: grpc.aio.Server, address: str) -> int:
    host, _, port = address.rpartition(":")
    failure: RuntimeError | None = None
    for number in ports.candidates() if port == str(ports.ANY) else [port]:
        try:
            return server.add_insecure_port(f"{host}:{number}")
        except RuntimeError as error:
            failure = error
    raise Unavailable(f"cannot listen on {address}: {failure}")


class _ProofInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Admits calls with a proof, of every method."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None  # the method does not exist
        try:
            self._gate.admit(details.method, _metadata(details.invocation_metadata, _PROOF_KEY))
        except NotAuthorised as error:
            return _refusal(handler, error, self._gate.challenge())
        return handler


def _refusal(handler: Any, error: ThreefsError, challenge: str) -> Any:
    """A handler that refuses the call with `error`, in the form of the answer that `handler` gives."""

    async def refuse(_: Any, context: Any) -> Any:
        context.set_trailing_metadata(((_CODE_KEY, str(error.code)), (_CHALLENGE_KEY, challenge)))
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)

    # It takes a stream of requests in any case, so that no request is received before it is refused.
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    return grpc.stream_unary_rpc_method_handler(refuse)


class ControlServer:
    """Serves unary methods over gRPC. `token` is the text of the cluster's key; empty: the cluster has none."""

    def __init__(self, token: str = "", limits: Limits = _DEFAULT_LIMITS, *, clock: Clock = CLOCK) -> None:
        self.durations: dict[str, Histogram] = {}  # of calls that have ended, by the name of their method
        self._token = token
        self._limits = limits
        self._interceptors = [_ProofInterceptor(Gate(token))] if token else []
        self._server: Any = None  # until it listens
        self._address = ""
        self._handlers: dict[str, dict[str, Any]] = {}
        self._health = health_aio.HealthServicer()
        self._clock = clock
        self._checked_at = math.inf  # when it was last certain that this process runs
        self._background = BackgroundTasks()

    def serve(self, method: Method[Req, Rep], handler: Callable[[Req], Awaitable[Rep]]) -> None:
        """Serve `method` by a coroutine function. A ThreefsError of the function reaches the caller as the same
        class."""

        durations = self.durations.setdefault(method.name, Histogram())

        async def answer(body: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            proof = grpc_proofs.read(_metadata(context.invocation_metadata(), _PROOF_KEY))
            began = self._clock.monotonic()
            try:
                self._check_takes_calls()
                reply = (await handler(self._request(method, body, proof))).SerializeToString()
            except ThreefsError as error:
                return await self._fail(context, grpc.StatusCode.FAILED_PRECONDITION, error, proof)
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # the caller has cancelled the call, or is gone
                _LOG.exception("a call failed unexpectedly", method=str(method))
                failure = Internal(f"{method} failed: {type(error).__name__}")
                return await self._fail(context, grpc.StatusCode.INTERNAL, failure, proof)
            finally:
                durations.observe(self._clock.monotonic() - began)
            context.set_trailing_metadata(self._proven(proof, reply))
            return reply

        self._handlers.setdefault(method.service, {})[method.name] = grpc.unary_unary_rpc_method_handler(answer)

    def _request(self, method: Method[Req, Any], body: bytes, proof: Proof | None) -> Req:
        if self._token and (proof is None or not grpc_proofs.fits(proof, body)):
            raise NotAuthorised(f"the proof of the call of {method} belongs to another request")
        method.request_bytes(body)
        try:
            return method.request.FromString(body)
        except DecodeError:
            raise ProtocolError(f"the request of {method} cannot be parsed") from None

    async def _fail(self, context: Any, status: Any, error: ThreefsError, proof: Proof | None) -> bytes:
        said = grpc_proofs.of_error(error.code, error.message)
        context.set_trailing_metadata(((_CODE_KEY, str(error.code)), *self._proven(proof, said)))
        await context.abort(status, error.message)
        raise AssertionError("abort raises")

    def _proven(self, call: Proof | None, reply: bytes) -> tuple[tuple[str, str], ...]:
        """The metadata that proves an answer."""
        if not self._token or call is None:
            return ()
        return ((_PROOF_KEY, grpc_proofs.of_reply(self._token, call, reply)),)

    async def start(self, host: str, port: int) -> str:
        """Listen. Returns "host:port" with the real port. Raises Unavailable."""
        name = f"[{host}]" if ":" in host else host
        self._address = f"{name}:{await self._listen(f'{name}:{port}')}"
        self._checked_at = self._clock.monotonic()
        self._background.start("suspensions", self._watch_for_suspensions())
        for service in ("", *self._handlers):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return self._address

    async def _listen(self, address: str) -> int:
        """Returns the port. Raises Unavailable."""
        server = grpc.aio.server(options=_options(self._limits), interceptors=self._interceptors)
        for service, handlers in self._handlers.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [*self._handlers, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, server)
        bound = _bind(server, address)
        await server.start()
        self._server = server
        return bound

    def _is_late(self) -> bool:
        return self._clock.monotonic() - self._checked_at >= SUSPENDED_S

    def _check_takes_calls(self) -> None:
        """Raises Unavailable after a suspension, until the connections of before are closed."""
        if self._is_late():
            raise Unavailable("this service was suspended, and takes only what is sent now: connect again")

    async def _watch_for_suspensions(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL_S)
            if self._is_late():
                _LOG.warning("this service was suspended: it closes its connections of the control plane")
                await self._close_connections()
            self._checked_at = self._clock.monotonic()

    async def _close_connections(self) -> None:
        await self._server.stop(None)
        self._checked_at = self._clock.monotonic()  # what comes over other connections is sent now
        while True:
            try:
                await self._listen(self._address)
                return
            except Unavailable as error:
                _LOG.error("the control plane cannot be served", error=error.message)
            await self._clock.sleep(CHECK_INTERVAL_S)

    async def stop(self, grace_s: float) -> None:
        await self._background.stop()
        await self._health.enter_graceful_shutdown()
        if self._server is not None:
            await self._server.stop(grace_s)


class ControlClient:
    """Calls a ControlServer. It reconnects by itself. `token` is the text of the cluster's key."""

    def __init__(self, address: str, token: str = "") -> None:
        self.address = address
        self._token = token
        self._challenge = ""
        options = [("grpc.max_receive_message_length", _MAX_REPLY_BYTES), ("grpc.max_reconnect_backoff_ms", 2000)]
        self._channel = grpc.aio.insecure_channel(address, options=options)

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """The reply of the handler. Raises the error of the handler, or Unavailable, DeadlineExceeded,
        NotAuthorised."""
        body = request.SerializeToString()
        ends = CLOCK.monotonic() + timeout_s
        for tries_left in reversed(range(_TRIES)):
            challenge = self._challenge
            try:
                return method.reply.FromString(await self._call_once(method, body, ends - CLOCK.monotonic()))
            except NotAuthorised:
                if not self._token or self._challenge == challenge or not tries_left:
                    raise
            except DecodeError:
                raise ProtocolError(f"the answer of {self.address} to {method} cannot be parsed") from None
        raise AssertionError("the last try returns or raises")

    def metadata(self, path: str, body: bytes = b"") -> tuple[Proof | None, tuple[tuple[str, str], ...] | None]:
        """The proof of a call, and the metadata that carries it."""
        if not self._token:
            return None, None
        proof = grpc_proofs.prove(self._token, self._challenge, path, body)
        return proof, ((_PROOF_KEY, proof.text()),)

    async def _call_once(self, method: Method[Any, Any], body: bytes, timeout_s: float) -> bytes:
        path = f"/{method.service}/{method.name}"
        proof, metadata = self.metadata(path, body)
        call = self._channel.unary_unary(path, None, None)(body, timeout=timeout_s, metadata=metadata)
        try:
            reply: bytes = await call
            trailer = await call.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(method, error, proof) from None
        if not self._proves(trailer, proof, reply):
            raise Unavailable(f"{self.address} did not prove that it knows the key of the cluster")
        return reply

    def _error_of(self, method: Method[Any, Any], error: grpc.aio.AioRpcError, proof: Proof | None) -> ThreefsError:
        trailer, message = error.trailing_metadata(), error.details() or ""
        code = _metadata(trailer, _CODE_KEY)
        if code == str(NotAuthorised.code):
            self._challenge = _metadata(trailer, _CHALLENGE_KEY) or self._challenge
            return NotAuthorised(message if self._token else NEEDS_KEY)
        if code.isdigit():
            if not self._proves(trailer, proof, grpc_proofs.of_error(int(code), message)):
                return Unavailable(
                    f"{self.address} answered with an error, but did not prove that it knows the key: {message}"
                )
            return error_of(int(code), message)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(f"{self.address} did not answer {method} within the deadline")
        return Unavailable(f"cannot reach {self.address} for {method}: {message}")

    def _proves(self, trailer: Any, call: Proof | None, reply: bytes) -> bool:
        if call is None:
            return True
        return grpc_proofs.is_of_reply(_metadata(trailer, _PROOF_KEY), self._token, call, reply)

    async def close(self) -> None:
        await self._channel.close(None)


def _metadata(pairs: Iterable[Any] | None, key: str) -> str:
    return next((str(value) for name, value in pairs or () if name == key), "")
