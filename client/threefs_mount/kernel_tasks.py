"""What pyfuse3 uses of trio, on asyncio: tasks that each take one request of the kernel after the other.

pyfuse3 has such a layer of its own, in which a task that fails vanishes without a word, and in which the loop stands
still when a request is taken back by the kernel between the moment that it is announced and that in which it is read.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import structlog

_LOG = structlog.get_logger()


class Closed(Exception):
    """The kernel is not to be waited for any more."""


class KernelTasks:
    """Stands in for the module `trio` in pyfuse3: the names are those of trio."""

    Lock = asyncio.Lock
    ClosedResourceError = Closed

    def __init__(self) -> None:
        self.lowlevel = self
        self._waiting: set[asyncio.Future[None]] = set()
        self._announced: set[int] = set()  # descriptors that have been seen

    def current_trio_token(self) -> None:
        return None

    def current_task(self) -> Any:
        return asyncio.current_task()

    def open_nursery(self) -> "Tasks":
        return Tasks()

    async def wait_readable(self, fd: int) -> None:
        if fd not in self._announced:
            self._announced.add(fd)
            os.set_blocking(fd, False)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(turn)
        loop.add_reader(fd, _wake, turn)
        try:
            await turn
        finally:
            loop.remove_reader(fd)
            self._waiting.discard(turn)

    def notify_closing(self, fd: int) -> None:
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(Closed())


def _wake(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)


class Tasks:
    """All of them have ended when the block is left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Tasks":
        return self

    def start_soon(self, work: Callable[..., Awaitable[None]], *args: Any, name: str = "") -> None:
        task = asyncio.create_task(_untiring(work, *args))
        task.name = name  # type: ignore[attr-defined]  # trio's tasks have one, and pyfuse3 reads it
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


async def _untiring(work: Callable[..., Awaitable[None]], *args: Any) -> None:
    """A request that was taken back, or one that went wrong, is not the end of the others."""
    while True:
        try:
            return await work(*args)
        except BlockingIOError:
            continue
        except OSError:
            _LOG.exception("the kernel cannot be asked any more")
            return None
        except Exception:
            _LOG.exception("a request was not answered")
