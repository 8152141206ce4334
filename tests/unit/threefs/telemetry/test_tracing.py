import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.harness.trace_collector import TraceCollector
from threefs.errors import InvalidArgument
from threefs.telemetry import tracing
from threefs.telemetry.tracing import CONTEXT_BYTES, Tracing


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceCollector]:
    monkeypatch.setattr(tracing, "_EXPORT_TIMEOUT_S", 60.0)  # what a busy machine takes later would be dropped
    with TraceCollector() as collector:
        yield collector


def test_spans_of_two_processes_lie_in_one_trace(collector: TraceCollector) -> None:
    sender, receiver = (
        Tracing(collector.endpoint, 1.0, "sender"),
        Tracing(collector.endpoint, 0.0, "receiver", "node-1"),
    )
    with sender.begun("begin", {"threefs.bytes": 4}):
        context = sender.context()
    assert len(context) == CONTEXT_BYTES
    with receiver.continued("go on", context, {}):
        with receiver.inner("step", {}):
            receiver.event("done", {"threefs.version": 7})
        receiver.note({"threefs.version": 7})
    sender.close()
    receiver.close()
    found = {span.name: span for span in collector.spans}
    begin, go_on, step = found["begin"], found["go on"], found["step"]
    assert begin.trace == go_on.trace == step.trace
    assert (begin.parent, go_on.parent, step.parent) == (b"", begin.span, go_on.span)
    assert (begin.attributes, go_on.attributes) == ({"threefs.bytes": 4}, {"threefs.version": 7})
    assert (go_on.program, go_on.instance, step.events) == ("receiver", "node-1", ("done",))


@pytest.mark.parametrize(
    "context", [b"", b"\x01" * 24, b"\x01" * 26, bytes(25), b"\x01" * 16 + bytes(9), bytes(16) + b"\x01" * 9]
)
def test_a_context_that_makes_no_sense_is_ignored(collector: TraceCollector, context: bytes) -> None:
    tracing = Tracing(collector.endpoint, 1.0, "p")
    with tracing.continued("none", context, {}), tracing.inner("none", {}):
        assert tracing.context() == b""
        tracing.event("none", {})
        tracing.note({"none": 1})
    with tracing.continued("new", context, {}, may_begin=True):
        assert len(tracing.context()) == CONTEXT_BYTES
    tracing.close()
    assert [(span.name, span.parent) for span in collector.spans] == [("new", b"")]


def test_work_without_context_is_not_part_of_the_trace_in_which_its_task_was_made(collector: TraceCollector) -> None:
    tracing = Tracing(collector.endpoint, 1.0, "p")
    with tracing.begun("one", {}), tracing.continued("other", b"", {}), tracing.inner("step of other", {}):
        pass
    tracing.close()
    assert [span.name for span in collector.spans] == ["one"]


def test_what_is_not_in_the_sample_is_not_sent_on(collector: TraceCollector) -> None:
    tracing = Tracing(collector.endpoint, 0.0, "p")
    with tracing.begun("none", {}), tracing.inner("none", {}):
        assert tracing.context() == b""
    tracing.close()
    assert not collector.spans


def test_a_span_says_which_error_ended_it(collector: TraceCollector) -> None:
    tracing = Tracing(collector.endpoint, 1.0, "p")
    with pytest.raises(InvalidArgument), tracing.begun("failing", {}):
        raise InvalidArgument("no")
    tracing.close()
    assert [span.failed for span in collector.spans] == [True]


def test_endpoint_and_sample_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="trace_endpoint is the OTLP/HTTP address"):
        Tracing("localhost:4318", 1.0, "p")
    with pytest.raises(InvalidArgument, match="trace_sample is a share from 0 to 1, not 2"):
        Tracing("http://localhost:4318", 2, "p")


def test_nothing_of_opentelemetry_is_imported_before_it_is_used() -> None:
    code = "import sys, threefs_client, threefs_storage.node; print('opentelemetry' in sys.modules)"
    path = ":".join(entry for entry in sys.path if entry)
    ran = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, check=True)
    assert ran.stdout == b"False\n"
