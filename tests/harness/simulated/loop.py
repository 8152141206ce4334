"""An event loop with virtual time, and the processes that live on it.

Everything happens in an order that depends on nothing but the program and its seed: callbacks run first in, first out,
and when none is left the clock jumps to the next timer. A callback belongs to the process in whose context it was
scheduled. To kill a process is never to run a callback of it again; to pause it is to hold them back. What belongs to
the kernel (network, disks) runs in no process.
"""

import asyncio
import contextlib
import contextvars
import struct
import zlib
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

_MOMENT = struct.Struct("<dq")
_TICK_S = 1e-9  # of clocks
#: A coroutine that waits again each time it is cancelled is closed after so many.
_MOST_WAITS = 100
BEGIN_S = 1000.0
PROCESS: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
#: The context of what belongs to no process.
KERNEL = contextvars.Context()


class Deadlock(AssertionError):
    """Nothing will ever happen again, and the main coroutine is not done."""


class OutOfTime(AssertionError):
    """The main coroutine took longer than it may, in virtual time or in steps."""


#: The rest of its forty methods is never called here.
_EventLoop: Any = asyncio.AbstractEventLoop


class Handle:
    """A callback that is still to be called: asyncio.Handle and TimerHandle, and no more than is used of them."""

    __slots__ = ("args", "callback", "context", "process")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.callback: Callable[..., object] | None = callback  # None: cancelled
        self.args = args
        self.context = copy_context() if context is None else context
        self.process: Process | None = self.context.get(PROCESS)

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class _Task(asyncio.Task[Any]):
    """Counted, so that sets of tasks (those of a TaskGroup) have an order that is the same in each run."""

    number: int
    process: "Process | None"  # that it is a task of

    def __new__(cls, *args: Any, loop: "SimLoop", **more: Any) -> "_Task":
        task = asyncio.Task.__new__(cls)
        loop.counted += 1
        task.number = loop.counted
        return task

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """Counted as well."""

    number: int

    def __hash__(self) -> int:
        return self.number


class SimLoop(_EventLoop):  # type: ignore[misc]
    def __init__(self) -> None:
        self.steps = 0
        self.counted = 0  # tasks and futures
        self.digest = 0  # of every moment at which something happened, and of how much: equal for equal runs
        self.failures: list[str] = []  # exceptions that nobody caught
        self._now = BEGIN_S
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._made = 0
        # All that are not done are kept: if one of a dead process were destroyed, its `finally` blocks would run.
        self._tasks: list[_Task] = []
        self._purge_at = 1024

    # ---- what asyncio and the program under test use

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        if 0.0 < delay < _TICK_S:  # nobody waits for less, and the sum may be the same moment again
            delay = _TICK_S
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context)
        self._made += 1
        heappush(self._timers, (when if when > self._now else self._now, self._made, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        future = _Future(loop=self)
        self.counted = future.number = self.counted + 1
        return future

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: contextvars.Context | None = None
    ) -> "asyncio.Task[T]":
        task = _Task(coro, loop=self, name=name, context=context)
        task.process = PROCESS.get() if context is None else context.get(PROCESS)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._purge_at:
            tasks[:] = [kept for kept in tasks if not kept.done()]
            self._purge_at = 2 * len(tasks) + 1024
        return task

    def run_in_executor(self, executor: object, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """The thread has the whole of the moment for itself."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def unfinished(self, process: "Process") -> list["asyncio.Task[Any]"]:
        """The tasks of a process that have not ended."""
        return [task for task in self._tasks if task.process is process and not task.done()]

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    # ---- running

    def run(self, main: Coroutine[Any, Any, T], *, limit_s: float = 1e9, most_steps: int = 1 << 62) -> T:
        """Run `main` to its end. Raises what it raises, Deadlock, OutOfTime."""
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            task = self.create_task(main)
            self._until(task.done, self._now + limit_s, most_steps)
            return task.result()
        finally:
            events._set_running_loop(running)

    def _until(self, done: Callable[[], bool], end: float, most_steps: int) -> None:
        # One call of this loop is most of what a run costs beside the program under test.
        ready = self._ready
        while not done():
            if not ready:
                self._jump()
                if self._now > end:
                    raise self._out_of_time()
            if self.steps > most_steps:
                raise self._out_of_time()
            handle = ready.popleft()
            callback, process = handle.callback, handle.process
            if callback is None:
                continue
            if process is not None and not process.running:
                process.withhold(handle)
                continue
            self.steps += 1
            try:
                handle.context.run(callback, *handle.args)
            except Exception as error:
                self.call_exception_handler({"message": f"Exception in callback {callback}", "exception": error})

    def _out_of_time(self) -> OutOfTime:
        return OutOfTime(f"not done after {self._now - BEGIN_S:.1f} s and {self.steps} steps")

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heappop(timers)
        if not timers:
            waiting = "; ".join(sorted(_place(task) for task in self._tasks if not task.done()))
            raise Deadlock(f"nothing is left to happen, and these wait: {waiting}")
        self._now = now = timers[0][0]  # call_at takes no time that has gone by
        self.digest = zlib.crc32(_MOMENT.pack(now, self.steps), self.digest)
        ready = self._ready
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])

    def discard(self) -> None:
        """Throw the world away. Whatever still waits is closed here and now, on this loop: left to the garbage
        collector, the `finally` blocks of dead tasks would run in the middle of another simulation."""
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    _close(task.get_coro())
            self._tasks.clear()
            self._ready.clear()
            self._timers.clear()
        finally:
            events._set_running_loop(running)


def _close(coro: Any) -> None:
    """Cancelled as often as a `finally` waits in turn. (`close()` lets go of what an inner one waits for.)"""
    with contextlib.suppress(Exception, asyncio.CancelledError):  # of a `finally` that finds its world gone
        for _ in range(_MOST_WAITS):
            coro.throw(asyncio.CancelledError())
    with contextlib.suppress(RuntimeError):
        coro.close()


def _place(task: "asyncio.Task[Any]") -> str:
    """Where a task waits."""
    frames = task.get_stack(limit=1)
    line = f" line {frames[0].f_lineno}" if frames else ""
    return f"{getattr(task.get_coro(), '__qualname__', task)}{line}"


class Process:
    """One simulated process of an operating system."""

    def __init__(self, loop: SimLoop, name: str, host: str) -> None:
        self.loop = loop
        self.name = name
        self.host = host
        self.alive = True
        self.running = True  # alive and not paused
        self.slept_s = 0.0  # how long it was paused
        self._slept_at = 0.0
        self.on_kill: dict[Callable[[], None], None] = {}  # what the kernel does when it ends, in this order
        self._context = contextvars.Context()
        self._context.run(PROCESS.set, self)
        self._withheld: list[Handle] = []  # also of a dead process: who is destroyed runs its `finally` blocks

    def start(self, main: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as this process."""
        return self.loop.create_task(main, context=self._context.copy())

    def kill(self) -> None:
        """kill -9."""
        if not self.alive:
            return
        self.alive = self.running = False
        for callback in list(self.on_kill):
            callback()

    def pause(self) -> None:
        """SIGSTOP, or its machine is suspended."""
        if self.running:
            self._slept_at = self.loop._now
        self.running = False

    def asleep_s(self) -> float:
        """How long it was paused, until now."""
        return self.slept_s + (self.loop._now - self._slept_at if self.alive and not self.running else 0.0)

    def resume(self) -> None:
        """SIGCONT."""
        if self.alive and not self.running:
            self.running = True
            self.slept_s += self.loop._now - self._slept_at
            self.loop._ready.extend(self._withheld)
            self._withheld.clear()

    def withhold(self, handle: Handle) -> None:
        self._withheld.append(handle)
