"""A caller that gives up what it has asked for, at one of its waits: each of them is as good as any other."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from tests.harness.seeded_random import SeededRandom
from threefs.errors import OutcomeUnknown

_MOST_WAITS = 60


def drawn_wait(dice: SeededRandom) -> int:
    """Low numbers more often: most operations wait a few times."""
    return int(_MOST_WAITS ** dice.uniform(0, 1))


async def given_up(work: Coroutine[Any, Any, None], wait: int, may_be: Callable[[], bool] = lambda: True) -> bool:
    """Let the work be cancelled when it waits for the `wait`-th time, if it may be then. Whether it was.

    Raises what the work raises, except that nobody knows its outcome once it was cancelled."""
    task: asyncio.Task[None]

    def cancel() -> None:
        if may_be():
            asyncio.get_running_loop().call_soon(task.cancel)

    async def counted() -> None:
        await _counted(work, wait, cancel)

    task = asyncio.ensure_future(counted())
    await asyncio.wait([task])
    if not task.cancelling():
        task.result()
        return False
    if not task.cancelled() and not isinstance(task.exception(), OutcomeUnknown):
        task.result()
    return True


@coroutine
def _counted(work: Coroutine[Any, Any, None], wait: int, reached: Callable[[], None]) -> Generator[Any, Any, None]:
    """Do the work. `reached` is called when it waits for that time."""
    waits, error = 0, None
    while True:
        try:
            waited_for = work.send(None) if error is None else work.throw(error)
        except StopIteration:
            return
        waits += 1
        if waits == wait:
            reached()
        try:
            yield waited_for
            error = None
        except BaseException as thrown:
            error = thrown
