"""Coroutines that are started without a task.

`work.send(None)` runs a coroutine up to its first wait. Often that is all of it, and the task is saved. Otherwise a
task awaits `StartedCoroutine` for the rest. Before its first wait such a coroutine must use nothing that needs a task,
such as timeouts and task groups.
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
