import pytest
from threefs_manager.store.read_retry import retry_forever

from tests.harness.clocks import SteppedClock
from threefs.errors import Fenced, StrangeStore, ThreefsError, Unavailable


@pytest.mark.parametrize("final", [Fenced("another manager"), StrangeStore("of another cluster")])
async def test_it_tries_again_until_it_works_or_waiting_does_not_help(final: ThreefsError) -> None:
    failures: list[ThreefsError] = [Unavailable("not yet"), Unavailable("not yet")]

    async def load() -> int:
        if failures:
            raise failures.pop()
        return 7

    clock = SteppedClock()
    assert await retry_forever(load, clock) == 7
    failures = [final]
    with pytest.raises(type(final)):
        await retry_forever(load, clock)
