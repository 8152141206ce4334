"""How long something took, counted in buckets, as Prometheus takes it. An observation costs less than a microsecond."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily

#: Upper ends of the buckets, in seconds: from a read that the memory answers to a call that waits for T.
_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_LABELS = [*map(str, _BOUNDS_S), "+Inf"]


class Histogram:
    """Of durations. Counts only rise."""

    __slots__ = ("_counts", "total_s")

    def __init__(self) -> None:
        self._counts = [0] * len(_LABELS)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound, and how many observations are not above it."""
        return list(zip(_LABELS, accumulate(self._counts), strict=True))


def family(
    name: str, about: str, labels: Sequence[str], found: Iterable[tuple[Sequence[str], Histogram]]
) -> "HistogramMetricFamily":
    """The metric of these histograms, each with the values of its labels."""
    from prometheus_client.core import HistogramMetricFamily  # only here: most clients are asked for no metrics

    made = HistogramMetricFamily(name, about, labels=labels)
    for values, histogram in found:
        made.add_metric(values, histogram.buckets(), histogram.total_s)
    return made
