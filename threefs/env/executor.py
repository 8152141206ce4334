"""Runs many calls by an executor of `concurrent.futures`: processes of this machine, or a cluster's (Dask, Ray)."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from itertools import islice
from multiprocessing import resource_tracker
from types import FrameType, TracebackType
from typing import TypeVar

from threefs.errors import Unavailable

__all__ = ["SPAWN_HINT", "Executor", "Future", "interrupts_held", "process_pool", "results", "thread_pool"]

T = TypeVar("T")

#: What ends spawned processes most often, at their beginning.
SPAWN_HINT = 'in a script, put the code that starts it below `if __name__ == "__main__":`'


@contextmanager
def interrupts_held(start_method: str) -> Iterator[None]:
    """For starting processes: Python begins with Ctrl-C held in them, and would end with a traceback before it comes to
    what they do about it. Not with "forkserver", whose process would hand that on to those of others.

    In the main thread also Ctrl-C that another thread receives waits for the end: Python handles it in the main thread,
    and a process that is half started would end with a traceback of its own.
    """
    if start_method == "forkserver":
        yield
        return
    if start_method == "spawn":
        resource_tracker.ensure_running()  # starting it with the first process would let Ctrl-C through
    with _interrupts_postponed():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _interrupts_postponed() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    # Processes inherit that it is ignored (nohup). One that is not Python's could not be put back.
    if not is_main or handler in (signal.SIG_IGN, None):
        yield
        return
    came = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def process_pool(workers: int) -> Executor:
    """Processes that are spawned, because forked ones inherit threads and connections that they cannot use. They end
    when this process is killed, and at once on Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    return _ProcessPool(workers, mp_context=context, initializer=_begin_worker)


class _ProcessPool(ProcessPoolExecutor):
    def submit(self, function: Callable[..., T], /, *arguments: object, **named: object) -> Future[T]:
        with interrupts_held("spawn"):  # it may start a process
            return super().submit(function, *arguments, **named)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After Ctrl-C no call begins that waits."""
        self.shutdown(cancel_futures=kind is not None)


def thread_pool(name: str, threads: int) -> Executor:
    """Threads of this process, started when first needed."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


def _begin_worker() -> None:
    """Without the watch, workers of a process that was killed would wait for work for ever. A worker has nothing to
    say about Ctrl-C, which the terminal sends to it too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    assert parent is not None, "it runs in a worker"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def results(
    executor: Executor, function: Callable[..., T], calls: Iterable[tuple[object, ...]], *, at_once: int
) -> Iterator[T]:
    """The results of `function(*call)`, each as soon as it is there. At most `at_once` calls are handed out at a time.

    After the first error no call begins; the error is raised when those that run have ended. Raises Unavailable when
    a worker dies.

    No call of a pool whose workers have died is cancelled. Its thread gives each of them that error, and ends in the
    midst if one was cancelled: the others would be waited for without end. On Ctrl-C the workers die at any moment.
    """
    remaining = iter(calls)
    running: set[Future[T]] = set()
    try:
        while True:
            running.update(executor.submit(function, *call) for call in islice(remaining, at_once - len(running)))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenExecutor as error:
        wait(running)
        running = set()
        raise Unavailable(f"a worker process has died ({error}); {SPAWN_HINT}") from error
    except KeyboardInterrupt:
        if isinstance(executor, ProcessPoolExecutor):  # it ends its calls itself
            running = set()
        raise
    finally:
        for future in running:
            future.cancel()
        wait(running)
