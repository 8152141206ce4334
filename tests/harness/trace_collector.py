"""A collector of OpenTelemetry: it takes spans over HTTP and keeps them."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Collected:
    """A span as it arrived."""

    name: str
    trace: bytes
    span: bytes
    parent: bytes  # empty: none
    program: str
    instance: str
    attributes: dict[str, Any]
    events: tuple[str, ...]
    failed: bool
    seconds: float


class TraceCollector:
    """`with TraceCollector() as collector:` ... `collector.endpoint`."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.spans.extend(_spans_of(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def wait_until(self, enough: Callable[[list[Collected]], bool]) -> list[Collected]:
        """Spans come some time after they have ended."""
        deadline = time.monotonic() + _PATIENCE_S
        while not enough(list(self.spans)):
            assert time.monotonic() < deadline, [(span.instance, span.name) for span in self.spans]
            time.sleep(0.05)
        return list(self.spans)

    def __enter__(self) -> "TraceCollector":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _spans_of(body: bytes) -> Iterator[Collected]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        process = _values(resource.resource.attributes)
        for span in [span for scope in resource.scope_spans for span in scope.spans]:
            yield Collected(
                span.name,
                span.trace_id,
                span.span_id,
                span.parent_span_id,
                process["service.name"],
                process.get("service.instance.id", ""),
                _values(span.attributes),
                tuple(event.name for event in span.events),
                span.status.code == span.status.STATUS_CODE_ERROR,
                (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
            )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
