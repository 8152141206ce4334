"""The last changes of each chain, for people. Kept in memory: a new primary begins with none."""

from collections.abc import Iterator

from threefs import routing as routing_module
from threefs.env.clock import Clock
from threefs.ids import ChainId
from threefs.routing import Chain
from threefs.telemetry.event_trace import EventTrace
from threefs.wire import manager_pb2 as pb

_CHAINS = 4096
_CHANGES = 16  # of each


class ChainHistory:
    """Of one term as primary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._trace = EventTrace(keys=_CHAINS, events=_CHANGES, clock=clock)

    def add(self, after: Chain) -> None:
        """The chain has become this one; a version that is known already is left out."""
        known = self._trace.of(after.chain_id)
        if known and known[-1].facts["chain"].version >= after.version:
            return
        self._trace.add(after.chain_id, "changed", chain=after)

    def has(self, chain: Chain) -> bool:
        """Whether the chain was this one, as far as that is remembered."""
        return any(event.facts["chain"] == chain for event in self._trace.of(chain.chain_id))

    def of(self, chain_id: ChainId) -> Iterator[pb.ChainEvent]:
        """Oldest first."""
        now = self._clock.monotonic()
        for event in self._trace.of(chain_id):
            yield pb.ChainEvent(
                chain=routing_module.chain_to_wire(event.facts["chain"]), ago_ms=round((now - event.at) * 1000)
            )
