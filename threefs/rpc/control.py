"""The control plane's binding: the same methods and handlers over gRPC, with health and reflection.

For services and tools in other languages. The client library must not import this: gRPC does not survive a fork.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import structlog
from grpc_health.v1 import _async as health_aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from threefs.errors import DeadlineExceeded, Internal, ThreefsError, Unavailable, error_of
from threefs.rpc.identity import check_token
from threefs.rpc.methods import Method, Rep, Req

#: Trailing metadata of a failed call, so that the caller gets the same error class.
_CODE_KEY = "threefs-error-code"
_TOKEN_KEY = "threefs-token"
_LIMIT_BYTES = 16 << 20

_LOG = structlog.get_logger()
_OPTIONS = [("grpc.max_receive_message_length", _LIMIT_BYTES), ("grpc.so_reuseport", 0)]


class ControlServer:
    """Serves unary methods over gRPC."""

    def __init__(self, token: str = "") -> None:
        self._token = token
        self._server = grpc.aio.server(options=_OPTIONS)
        self._handlers: dict[str, dict[str, Any]] = {}
        self._health = health_aio.HealthServicer()

    def serve(self, method: Method[Req, Rep], handler: Callable[[Req], Awaitable[Rep]]) -> None:
        """Serve `method` by a coroutine function; a ThreefsError it raises reaches the caller as the same class."""

        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                check_token(self._token, _metadata(context.invocation_metadata(), _TOKEN_KEY))
                return await handler(request)
            except ThreefsError as error:
                context.set_trailing_metadata(((_CODE_KEY, str(error.code)),))
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
            except Exception as error:
                if isinstance(error, grpc.aio.AbortError):
                    raise
                _LOG.exception("a call failed unexpectedly", method=str(method))
                context.set_trailing_metadata(((_CODE_KEY, str(Internal.code)),))
                await context.abort(grpc.StatusCode.INTERNAL, f"{method} failed: {type(error).__name__}")

        self._handlers.setdefault(method.service, {})[method.name] = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=method.request.FromString,
            response_serializer=method.reply.SerializeToString,
        )

    async def start(self, host: str, port: int) -> str:
        """Listen; "host:port" with the real port. Raises Unavailable."""
        for service, handlers in self._handlers.items():
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [*self._handlers, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self._server)
        name = f"[{host}]" if ":" in host else host
        try:
            bound = self._server.add_insecure_port(f"{name}:{port}")
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {name}:{port}: {error}") from None
        await self._server.start()
        for service in ("", *self._handlers):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return f"{name}:{bound}"

    async def stop(self, grace_s: float) -> None:
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


class ControlClient:
    """Calls a ControlServer; reconnects by itself."""

    def __init__(self, address: str, token: str = "") -> None:
        self.address = address
        self._metadata = ((_TOKEN_KEY, token),) if token else None
        options = [("grpc.max_receive_message_length", _LIMIT_BYTES), ("grpc.max_reconnect_backoff_ms", 2000)]
        self._channel = grpc.aio.insecure_channel(address, options=options)

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """Raises what the handler raised, or Unavailable, DeadlineExceeded."""
        invoke = self._channel.unary_unary(
            f"/{method.service}/{method.name}",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        try:
            reply: Rep = await invoke(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error) from None
        return reply

    def _translated(self, method: Method[Any, Any], error: grpc.aio.AioRpcError) -> ThreefsError:
        code = _metadata(error.trailing_metadata(), _CODE_KEY)
        if code.isdigit():
            return error_of(int(code), error.details() or "")
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(f"{self.address} did not answer {method} within the deadline")
        return Unavailable(f"cannot reach {self.address} for {method}: {error.details()}")

    async def close(self) -> None:
        await self._channel.close(None)


def _metadata(pairs: Iterable[Any] | None, key: str) -> str:
    return next((str(value) for name, value in pairs or () if name == key), "")
