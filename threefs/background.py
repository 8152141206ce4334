"""Tasks that live as long as their process: without one of them it would stay alive and useless (I19).

Such a task ends only when its owner stops it. If it ends in any other way (by an exception, by returning, or by a
cancellation that was meant for something it waited for), the program hears of it (`on_death`): a service ends, and is
started again.
"""

import asyncio
import enum
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from threefs.telemetry.library_logging import LibraryLogger

#: The name of a task that has died, and what it died of (None: it returned, or was cancelled by accident).
OnDeath = Callable[[str, BaseException | None], None]

_LOG = LibraryLogger(__name__)


class _May(enum.Enum):
    """How a task may end before it is stopped."""

    NOT_END = enum.auto()
    RETURN = enum.auto()
    FAIL = enum.auto()


class TaskDied(Exception):
    """A task without which the process is useless has ended."""


def _only_logged(name: str, error: BaseException | None) -> None:
    pass


_ON_DEATH: ContextVar[OnDeath] = ContextVar("on_death", default=_only_logged)


def on_death(tell: OnDeath) -> None:
    """Call `tell` when a background task of this task, or of a task that it starts, has died."""
    _ON_DEATH.set(tell)


class BackgroundTasks:
    """The tasks of one owner. They are named for the log."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], _May] = {}

    def __len__(self) -> int:
        """How many have not ended yet."""
        return len(self._tasks)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work` until `stop`. Its end before that is a death."""
        return self._start(name, work, _May.NOT_END)

    def run(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work`, which returns when it is done, or until `stop`. Only an error is a death."""
        return self._start(name, work, _May.RETURN)

    def attempt(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work`, which the process can do without. An error is logged, and nothing else."""
        return self._start(name, work, _May.FAIL)

    def _start(self, name: str, work: Coroutine[Any, Any, Any], may: _May) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = may
        task.add_done_callback(self._ended)
        return task

    async def join(self) -> None:
        """Wait until all have ended by themselves, those that start during the wait as well."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Cancel them all, and wait until they have ended."""
        await cancel_and_wait(*self._tasks)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        may = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelling() or (error is None and may is not _May.NOT_END and not task.cancelled()):
            return  # as its owner, or the end of the loop, wanted
        name = task.get_name()
        if may is _May.FAIL:
            _LOG.error("a background task has failed", task=name, error=repr(error))
            return
        _LOG.error("a background task has died", task=name, error=repr(error) if error else "it ended without an error")
        _ON_DEATH.get()(name, error)


async def cancel_and_wait(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks, and return when they have ended, however they end: none of them may touch anything after that."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
