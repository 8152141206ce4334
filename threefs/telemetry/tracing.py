"""Traces of writes by OpenTelemetry: the spans of this process, and the context in which the next process goes on.

A *span* says when one piece of work began and ended; the spans of one write in all its processes are its *trace*. The
context is sent with the write: trace (16 bytes), span (8), flags (1). Nothing of OpenTelemetry is imported before the
first `Tracing` is made. Where tracing is off there is none, and the parts of a process are those that know no traces.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from threefs.errors import InvalidArgument

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind

CONTEXT_BYTES = 25
_EXPORT_INTERVAL_MS = 1000
_EXPORT_TIMEOUT_S = 2.0  # also how long a program that ends waits for each batch that a collector does not take
TRACE_VARIABLE = "THREEFS_TRACE"  # the trace_endpoint of programs that do not say one
_PATH = "/v1/traces"

Attributes = Mapping[str, str | int]


@cache
def tracing_to(endpoint: str, sample: float, program: str, instance: str = "") -> "Tracing":
    """The one of this process. Raises as `Tracing` does."""
    return Tracing(endpoint, sample, program, instance)


class Tracing:
    """Makes spans, and sends them to a collector by a thread of its own. What a collector does not take is dropped."""

    def __init__(self, endpoint: str, sample: float, program: str, instance: str = "") -> None:
        """`endpoint` is the OTLP/HTTP port of a collector ("http://host:4318"), `sample` the share of the traces that
        begin here and are kept, `program` and `instance` name this process in them. Raises InvalidArgument."""
        check(endpoint, sample)
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
        except ImportError as error:
            raise InvalidArgument(
                f"traces for {endpoint} need OpenTelemetry ({error}): pip install 'threefs[tracing]'"
            ) from None
        self._api = trace
        resource = Resource.create({"service.name": program, **({"service.instance.id": instance} if instance else {})})
        self._provider = TracerProvider(sampler=ParentBasedTraceIdRatio(sample), resource=resource)
        exporter = OTLPSpanExporter(endpoint.rstrip("/") + _PATH, timeout=_EXPORT_TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_EXPORT_INTERVAL_MS))
        self._tracer = self._provider.get_tracer("threefs")

    def close(self) -> None:
        """Send what is left. The end of the program does so, too."""
        self._provider.shutdown()

    @contextmanager
    def begun(self, name: str, attributes: Attributes) -> Iterator[None]:
        """A span of work that begins here: in the trace of the program if that has one, otherwise in a new one."""
        with self._span(name, None, self._api.SpanKind.CLIENT, attributes):
            yield

    @contextmanager
    def continued(
        self, name: str, context: bytes, attributes: Attributes, *, may_begin: bool = False
    ) -> Iterator[None]:
        """A span of work for another process, which has sent its context. Without one that makes sense there is no
        span; with `may_begin` a new trace may begin."""
        parent = self._parent(context)
        if parent is None and not may_begin:
            with self._api.use_span(self._api.INVALID_SPAN):  # this task may have been made in the work of another one
                yield
            return
        with self._span(name, parent or _nothing(), self._api.SpanKind.SERVER, attributes):
            yield

    @contextmanager
    def inner(self, name: str, attributes: Attributes, *, is_call: bool = False) -> Iterator[None]:
        """A span within the present one; nothing if there is none. `is_call`: another process does the work."""
        if not self._api.get_current_span().is_recording():
            yield
            return
        kind = self._api.SpanKind.CLIENT if is_call else self._api.SpanKind.INTERNAL
        with self._span(name, None, kind, attributes):
            yield

    def context(self) -> bytes:
        """Of the present span, for another process; empty if there is none that is kept."""
        span = self._api.get_current_span()
        if not span.is_recording():
            return b""
        found = span.get_span_context()
        return found.trace_id.to_bytes(16, "big") + found.span_id.to_bytes(8, "big") + bytes([found.trace_flags])

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the present span."""
        self._api.get_current_span().set_attributes(attributes)

    def event(self, name: str, attributes: Attributes) -> None:
        """Something has happened in the present span."""
        span = self._api.get_current_span()
        if span.is_recording():
            span.add_event(name, attributes)

    @contextmanager
    def _span(self, name: str, parent: "Context | None", kind: "SpanKind", attributes: Attributes) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            name, context=parent, kind=kind, attributes=attributes, record_exception=False
        ):
            yield

    def _parent(self, context: bytes) -> "Context | None":
        if len(context) != CONTEXT_BYTES:
            return None
        found = self._api.SpanContext(
            int.from_bytes(context[:16], "big"),
            int.from_bytes(context[16:24], "big"),
            is_remote=True,
            trace_flags=self._api.TraceFlags(context[24]),
        )
        return self._api.set_span_in_context(self._api.NonRecordingSpan(found), _nothing()) if found.is_valid else None


def check(endpoint: str, sample: float) -> None:
    """Raises InvalidArgument."""
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidArgument(
            f"trace_endpoint is the OTLP/HTTP address of a collector, such as http://127.0.0.1:4318, not {endpoint!r}"
        )
    if not 0 <= sample <= 1:
        raise InvalidArgument(f"trace_sample is a share from 0 to 1, not {sample!r}")


def _nothing() -> "Context":
    from opentelemetry.context import Context

    return Context()
