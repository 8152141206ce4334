"""One event loop in a background thread per process, for callers that block.

A forked child has none of its parent's threads, so it starts a loop of its own when it first needs one. Objects of the
parent (connections, identities, unfinished calls) are recognized by `generation()`, which is higher in the child.

When the program ends, the loop ends before the interpreter stops the daemon threads of the program. A daemon thread
that waits for the loop then, or calls it, gets no error: it waits until the interpreter stops it, and prints no
traceback.
"""

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

import uvloop

from threefs.env.shielded_wait import shielded

T = TypeVar("T")

#: Work that was submitted to the loop.
Submitted = Future

#: The time for storing unsaved data when the program ends. A cluster that does not answer must not keep the program.
EXIT_S = 30.0
_STOP_S = 2.0
_CANCEL_S = 5.0  # for work to end after it was cancelled


class LoopThread:
    """A uvloop that runs in a thread, for work of other threads."""

    def __init__(self, name: str = "threefs") -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there can be no more threads
            self.loop.close()
            raise

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop, and wait for its result.

        An interrupt of the wait (Ctrl-C) cancels the work, and waits until it has ended: after that, neither memory of
        the caller (I14) nor an object that the caller uses again is touched. Raises TimeoutError if the program ends
        and the work takes too long.
        """
        if self.inside():
            work.close()
            raise RuntimeError("a blocking call on the event loop thread would wait for itself")
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []
        daemon = threading.current_thread().daemon

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _settle(outcome, task, daemon))

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:  # interrupted before `begin` was scheduled
                work.close()
                outcome.set_exception(CancelledError())

        try:
            self.loop.call_soon_threadsafe(begin)
            return outcome.result(_PROCESS.left_s())
        except BaseException:
            if self.loop.is_closed():
                work.close()
                park_daemon()
            elif not outcome.done():
                self.loop.call_soon_threadsafe(cancel)
                wait([outcome], _CANCEL_S)
            raise

    async def run_for_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on this loop for a task of any loop, and wait for its result.

        If the task is cancelled, so is the work. The wait ends when the work has ended, as in `run`.
        """
        if self.inside():
            return await work
        outcome: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _settle(outcome, task, daemon=False))

        try:
            self.loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the loop is closed
            work.close()
            raise
        waiting = asyncio.wrap_future(outcome)
        try:
            return await shielded(waiting)
        except asyncio.CancelledError:
            self.loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # after `begin`
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                waiting.exception()  # whoever would want it was cancelled
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> "Submitted[T]":
        """Start `work` without waiting for it. Once the loop is closed, it is cancelled."""
        if self.loop.is_closed():
            work.close()
            cancelled: Submitted[T] = Future()
            cancelled.cancel()
            return cancelled
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call_soon(self, work: Callable[[], None]) -> None:
        """Call `work` on the loop, without waiting for it."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(work)

    def inside(self) -> bool:
        """Whether the caller is on the thread of the loop."""
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """Cancel all tasks, and end the thread. A thread that is stuck ends with the process."""
        if self.loop.is_closed():
            return
        future = asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop)
        with contextlib.suppress(TimeoutError):
            future.result(_STOP_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_S)
        if not self._thread.is_alive():
            self.loop.close()


def _settle(outcome: "Future[T]", task: "asyncio.Task[T]", daemon: bool) -> None:
    """Pass the end of a task on to the thread that waits for it."""
    if task.cancelled():
        if not (daemon and _PROCESS.ended):
            outcome.set_exception(CancelledError())
    elif error := task.exception():
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Process:
    """The loop thread of this process, and its state."""

    def __init__(self) -> None:
        self.generation = 0
        self.lock = threading.Lock()
        self.fork_lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.inherited: list[LoopThread] = []
        self.at_exit: list[Callable[[], None]] = []
        self.ended = False  # the program has come to its end
        self._ends_at = float("inf")  # the end of all waits, once the program ends

    def left_s(self) -> float | None:
        """The maximum of a wait in seconds; None: there is none."""
        return None if self._ends_at == float("inf") else max(0.0, self._ends_at - time.monotonic())

    def after_fork_in_child(self) -> None:
        self.generation += 1
        self.ended = False
        self.lock, self.fork_lock = threading.Lock(), threading.Lock()  # another thread of the parent may have held it
        if self.thread is not None:
            # Kept for ever, because closing the loop would change the epoll set that the parent still uses.
            self.inherited.append(self.thread)
            self.thread = None

    def start(self) -> LoopThread:
        """Start the thread. Children of `multiprocessing` do not run `atexit`, but have finalizers of their own."""
        thread = LoopThread()  # if that fails, nothing is registered, and the next call tries again
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None and multiprocessing.parent_process() is not None:
            from multiprocessing.util import Finalize, is_exiting

            if is_exiting():  # the finalizers have run: this is a thread of the program that goes on
                self.stop_after_threads()
            else:
                Finalize(None, self.stop_after_threads, exitpriority=0)
        return thread

    def stop_after_threads(self) -> None:
        """Begin to stop. `multiprocessing` runs its finalizers before it waits for the threads of the program, whose
        calls go on. So a thread that it waits for as well stops the loop after them."""
        try:
            threading.Thread(target=self._join_and_stop, name="threefs-exit").start()
        except RuntimeError:  # there can be no more threads
            if self.thread is not None:  # else it is being started
                self.stop()

    def _join_and_stop(self) -> None:
        own = threading.current_thread()
        while threads := [
            each for each in threading.enumerate() if each.is_alive() and not each.daemon and each != own
        ]:
            for thread in threads:  # the main thread counts as ended when it waits for the others
                thread.join()
        self.stop()

    def stop(self) -> None:
        """At the end of the program: store unsaved data, then stop the loop."""
        self.ended = True
        if self.thread is None:
            return
        self._ends_at = time.monotonic() + EXIT_S
        try:
            for work in self.at_exit:
                work()
        finally:
            self._ends_at = float("inf")
            self.thread.stop()
            self.thread = None


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.after_fork_in_child)
atexit.register(_PROCESS.stop)


def shared() -> LoopThread:
    """The loop thread of this process, started on first use. It ends with the process.

    Raises RuntimeError when the interpreter shuts down, because a new thread would not run any more.
    """
    thread = _PROCESS.thread
    if thread is None:
        park_daemon()
        if sys.is_finalizing():
            raise RuntimeError("the program is ending, so it is too late for calls to the cluster")
        with _PROCESS.lock:
            thread = _PROCESS.thread
            if thread is None:
                thread = _PROCESS.thread = _PROCESS.start()
    return thread


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the shared loop, and wait for its result. Raises what `shared` and LoopThread.run raise."""
    try:
        thread = shared()
    except BaseException:
        work.close()
        raise
    return thread.run(work)


def park_daemon() -> None:
    """At the end of the program a daemon thread waits here until the interpreter stops it. Else it does nothing."""
    if _PROCESS.ended and threading.current_thread().daemon:
        while True:
            threading.Event().wait()


def at_exit(work: Callable[[], None]) -> None:
    """Call `work` when the program ends, while the loop still runs. All such calls together have EXIT_S."""
    _PROCESS.at_exit.append(work)


def generation() -> int:
    """The number of forks between this process and the one that imported this module first."""
    return _PROCESS.generation


def process_lock() -> threading.Lock:
    """One for all that a forked child makes anew on first use, by whichever of its threads comes first."""
    return _PROCESS.fork_lock


def new_call_lock() -> "tuple[threading.RLock, Callable[[], bool]]":
    """A lock for calls in the middle of which a signal handler may make another one, and whether the calling thread has
    the lock."""
    lock = threading.RLock()
    return lock, lock._is_owned  # type: ignore[attr-defined]


def new_lock() -> threading.Lock:
    """A lock for the few places that several threads of a blocking caller enter."""
    return threading.Lock()
