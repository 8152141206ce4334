"""Tasks that live as long as their process: without one of them it would stay alive and useless (I19).

Such a task ends only when its owner stops it. If it ends in any other way, by an exception, by returning, or by a
cancellation that was meant for something it waited for, whoever runs the process is told (`on_death`): a service ends,
and is started again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from threefs.telemetry.library_logging import LibraryLogger

#: The name of a task that has died, and what it died of (None: it returned, or was cancelled by accident).
OnDeath = Callable[[str, BaseException | None], None]

_LOG = LibraryLogger(__name__)


class TaskDied(Exception):
    """A task without which the process is useless has ended."""


def _only_logged(name: str, error: BaseException | None) -> None:
    pass


_ON_DEATH: ContextVar[OnDeath] = ContextVar("on_death", default=_only_logged)


def on_death(tell: OnDeath) -> None:
    """From now on `tell` hears of deaths, in this task and in those that it starts."""
    _ON_DEATH.set(tell)


class BackgroundTasks:
    """The tasks of one owner. They are named for the log."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finite: set[asyncio.Task[Any]] = set()  # that may return

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work` until `stop`. Its end before that is a death."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def run(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run `work`, which returns when it is done, or until `stop`. Only an error is a death."""
        task = self.start(name, work)
        self._finite.add(task)
        return task

    async def stop(self) -> None:
        """Cancel them all, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        finite = task in self._finite
        self._tasks.discard(task)
        self._finite.discard(task)
        error = None if task.cancelled() else task.exception()
        if task.cancelling() or (finite and error is None and not task.cancelled()):
            return  # as its owner, or the end of the loop, wanted
        name = task.get_name()
        _LOG.error("a background task has died", task=name, error=repr(error) if error else "it ended without an error")
        _ON_DEATH.get()(name, error)
