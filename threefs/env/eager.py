"""Coroutines that are begun before there is a task for them.

What a coroutine does until it first waits is done at once, by `work.send(None)`: often that is all, or all that
somebody else waits for. For the rest a task awaits `Begun`. Until then it must do nothing that needs to be in a task,
as timeouts and task groups do.
"""

from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class StartedCoroutine(Generic[T]):
    """A coroutine that was run up to its first wait, to be awaited for the rest."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work = work
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        work, waits_for = self._work, self._waits_for
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                step = partial(work.throw, error)
            else:
                step = partial(work.send, value)
            try:
                waits_for = step()
            except StopIteration as done:
                result: T = done.value
                return result
