"""How much faster or slower the clocks of nodes run than that of this manager.

Leases bear a clock that runs a fifth faster than another one (docs/protocol.md, "Leases"); one that is much worse than
any sound clock is told long before.
Each heartbeat has a reading of its sender's clock. A message that travels long only makes its sender look late, so of
each interval the reading that came with the least delay counts. Two such readings with an hour between them give the
rate; the delays spoil it by some parts per million.
"""

from dataclasses import dataclass

from threefs.env.clock import Clock

_INTERVAL_S = 300.0
#: The first reading is replaced by a newer one after this time, so a clock that was mended is soon taken for good.
_WINDOW_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Reading:
    sent_s: float  # by the clock of the node
    heard_s: float  # by that of the manager

    @property
    def lateness_s(self) -> float:
        """Beside a constant: how long the message travelled."""
        return self.heard_s - self.sent_s


@dataclass(slots=True)
class _Node:
    incarnation: int
    began_s: float  # of the interval
    best: _Reading  # of the interval
    first: _Reading | None = None
    parts_per_million: int | None = None


class ClockRates:
    """The clock rates of nodes, from the heartbeats of one term as primary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[int, _Node] = {}

    def on_heartbeat(self, node_id: int, incarnation: int, clock_ms: int) -> None:
        """`clock_ms`: the reading of the sender's clock; 0: an older release does not tell it."""
        if not clock_ms:
            return
        reading = _Reading(clock_ms / 1000, self._clock.monotonic())
        node = self._nodes.get(node_id)
        if node is None or node.incarnation != incarnation:  # a new process may run on another machine
            self._nodes[node_id] = _Node(incarnation, reading.heard_s, reading)
            return
        if reading.heard_s - node.began_s >= _INTERVAL_S:
            _end_interval(node)
            node.began_s, node.best = reading.heard_s, reading
        elif reading.lateness_s < node.best.lateness_s:
            node.best = reading

    def parts_per_million(self, node_id: int) -> int | None:
        """By how much the clock of the node runs faster. None: it is not known yet."""
        node = self._nodes.get(node_id)
        return None if node is None else node.parts_per_million


def _end_interval(node: _Node) -> None:
    if node.first is None:
        node.first = node.best
        return
    heard_s = node.best.heard_s - node.first.heard_s
    if heard_s >= _INTERVAL_S:  # two readings that lie close together tell little
        node.parts_per_million = round(((node.best.sent_s - node.first.sent_s) / heard_s - 1) * 1e6)
    if heard_s >= _WINDOW_S:
        node.first = node.best
