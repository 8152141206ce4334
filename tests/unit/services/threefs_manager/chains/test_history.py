"""The last changes of a chain, oldest first."""

from threefs_manager.chains.history import ChainHistory

from tests.harness.clocks import SteppedClock
from threefs.ids import ChainId, TargetId
from threefs.routing import Chain, ChainMember, PublicState


def test_the_last_changes_are_kept_with_their_age() -> None:
    clock = SteppedClock()
    history = ChainHistory(clock)
    for version in range(2, 20):
        history.add(Chain(ChainId(1), version, (ChainMember(TargetId(101), PublicState.SERVING),)))
        clock.advance(1.0)
        history.add(Chain(ChainId(1), version, ()))
    found = list(history.of(ChainId(1)))
    assert [event.chain.version for event in found] == list(range(4, 20))
    assert (found[-1].ago_ms, found[0].ago_ms) == (1000, 16_000)
    assert not list(history.of(ChainId(2)))
