"""Counts what this service has done since it started, for people and for Prometheus."""

from collections import deque
from dataclasses import dataclass

from threefs.errors import Retry, ThreefsError
from threefs.kv.engine_api import TransactionCounts

SAMPLE_S = 10.0
_SAMPLES = 7  # so rates are those of the last minute


@dataclass(slots=True)
class Calls:
    """The calls of one method. A call for many names counts each of them as a name."""

    calls: int = 0
    names: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0

    def record(self, names: int, seconds: float) -> None:
        self.calls += 1
        self.names += names
        self.seconds += seconds

    def record_error(self, error: ThreefsError) -> None:
        """A call ended in an error: `refused` if that is an answer like "no such file", else `failed`."""
        if error.retry is Retry.NEVER:
            self.refused += 1
        else:
            self.failed += 1


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second."""

    names: float
    transactions: float
    retried: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    names: int
    transactions: int
    retried: int


class Statistics:
    def __init__(self) -> None:
        self.calls: dict[str, Calls] = {}
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)

    def of(self, method: str) -> Calls:
        return self.calls.setdefault(method, Calls())

    def sample(self, now: float, transaction_counts: TransactionCounts) -> None:
        """Call this every SAMPLE_S."""
        self._samples.append(self._take_sample(now, transaction_counts))

    def rates(self, now: float, transaction_counts: TransactionCounts) -> Rates:
        """Since the oldest sample."""
        seen = self._take_sample(now, transaction_counts)
        since = self._samples[0] if self._samples else seen
        seconds = now - since.at
        if seconds <= 0:
            return Rates(0.0, 0.0, 0.0)
        return Rates(
            (seen.names - since.names) / seconds,
            (seen.transactions - since.transactions) / seconds,
            (seen.retried - since.retried) / seconds,
        )

    def _take_sample(self, now: float, transaction_counts: TransactionCounts) -> _Sample:
        return _Sample(
            now,
            sum(one.names for one in self.calls.values()),
            transaction_counts.committed,
            transaction_counts.retried.total(),
        )
