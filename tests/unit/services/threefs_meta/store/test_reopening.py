import pytest
from structlog.testing import capture_logs
from threefs_meta.store.reopening import outlast_reopening

from tests.harness.clocks import SteppedClock
from threefs.errors import Corrupt, MaybeCommitted, ThreefsError, Throttled, Unavailable


@pytest.mark.parametrize("error", [Unavailable("opened again"), MaybeCommitted("damaged")])
async def test_work_is_done_again_until_the_store_is_open(error: ThreefsError) -> None:
    errors = [error] * 20

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert await outlast_reopening(work, SteppedClock()) == "done"


async def test_a_store_that_takes_no_changes_is_waited_for_as_long_as_it_takes() -> None:
    """Each start left one more process of PostgreSQL waiting for the standby."""
    maybe = MaybeCommitted("a standby is away")
    maybe.__cause__ = throttled = Throttled("a standby is away")
    # Then it comes and goes: a commit is sent, and waits.
    errors: list[ThreefsError] = [MaybeCommitted("no answer"), *[throttled] * 1000, *[maybe] * 1000]

    async def work() -> str:
        if errors:
            raise errors.pop()
        return "done"

    with capture_logs() as logs:
        assert await outlast_reopening(work, SteppedClock()) == "done"
    assert [entry["error"] for entry in logs] == ["a standby is away"], "it is told once"


@pytest.mark.parametrize("error", [Unavailable("failed"), Corrupt("damaged")])
async def test_a_store_that_is_not_opened_again_ends_the_start(error: ThreefsError) -> None:
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        raise error

    with pytest.raises(type(error)):
        await outlast_reopening(work, SteppedClock())
    assert (tries > 1) is isinstance(error, Unavailable)
