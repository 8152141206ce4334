import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from threefs_cli import stop_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test run, which no signal ends meanwhile."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *received: None) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_task_once(number: signal.Signals) -> None:
    """A second one would break off what the first one has begun to tidy up."""
    tidied: list[bool] = []

    async def work() -> None:
        stop_signals.cancel_current_task()
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)
            tidied.append(True)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
    assert tidied


def test_what_ignores_sighup_goes_on() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work() -> str:
        stop_signals.cancel_current_task()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        return "done"

    assert asyncio.run(work()) == "done"
