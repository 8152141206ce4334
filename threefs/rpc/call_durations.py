"""How long the calls of this process take, and how they fail: counted only if somebody asks for it."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from threefs.env.clock import Clock
from threefs.errors import ThreefsError
from threefs.rpc.methods import Method
from threefs.telemetry import histogram
from threefs.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric


class CallDurations:
    """Of all connections of a process to services. A call that is repeated counts for each attempt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._durations: dict[str, Histogram] = {}
        self._errors: Counter[tuple[str, str]] = Counter()

    def begin(self, method: Method[Any, Any], future: "asyncio.Future[Any]") -> None:
        """A call begins, which ends with the future."""
        future.add_done_callback(partial(self._end, method.name, self._clock.monotonic()))

    def _end(self, method: str, began: float, future: "asyncio.Future[Any]") -> None:
        durations = self._durations.get(method)
        if durations is None:
            durations = self._durations[method] = Histogram()
        durations.observe(self._clock.monotonic() - began)
        if future.cancelled():
            self._errors[method, "Cancelled"] += 1
        elif isinstance(error := future.exception(), ThreefsError):
            self._errors[method, type(error).__name__] += 1

    def metrics(self) -> Iterable["Metric"]:
        """Another thread than that of the connections may call this."""
        from prometheus_client.core import CounterMetricFamily  # as in `histogram.family`

        yield histogram.family(
            "threefs_client_call_duration_seconds",
            "Calls to services, each attempt for itself, from the send to the whole answer.",
            ["method"],
            [([method], durations) for method, durations in sorted(self._durations.copy().items())],
        )
        errors = CounterMetricFamily(
            "threefs_client_call_errors",
            "Attempts that ended in an error, also in one like no such file.",
            labels=["method", "error"],
        )
        for (method, error), count in sorted(self._errors.copy().items()):
            errors.add_metric([method, error], count)
        yield errors
