"""One event loop in a background thread per process, for callers that block.

A forked child has none of its parent's threads: it starts a loop of its own when it first needs one. What belongs to
the parent (connections, identities, unfinished calls) is recognised by `generation()`, which differs in the child.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """A running uvloop that other threads hand work to."""

    def __init__(self, name: str = "threefs") -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for its result. An interrupted wait (Ctrl-C) cancels it."""
        if self.inside():
            work.close()
            raise RuntimeError("a blocking call on the event loop thread would wait for itself")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, object]) -> None:
        """Start `work` and forget it."""
        if self.loop.is_closed():
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def inside(self) -> bool:
        """True on the loop's own thread."""
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """Cancel what runs and end the thread."""
        if self.loop.is_closed():
            return
        future = asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop)
        future.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Process:
    """What this process shares."""

    def __init__(self) -> None:
        self.generation = 0
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.inherited: list[LoopThread] = []

    def after_fork_in_child(self) -> None:
        self.generation += 1
        self.lock = threading.Lock()  # another thread of the parent may have held it
        if self.thread is not None:
            # Kept for ever: to close the loop would change the epoll set that the parent still uses.
            self.inherited.append(self.thread)
            self.thread = None

    def stop(self) -> None:
        if self.thread is not None:
            self.thread.stop()
            self.thread = None


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.after_fork_in_child)
atexit.register(_PROCESS.stop)


def shared() -> LoopThread:
    """The loop thread of this process, started on first use. It ends with the process."""
    thread = _PROCESS.thread
    if thread is None:
        with _PROCESS.lock:
            thread = _PROCESS.thread
            if thread is None:
                thread = _PROCESS.thread = LoopThread()
    return thread


def generation() -> int:
    """How many forks lie between this process and the first one that imported this module."""
    return _PROCESS.generation


def new_lock() -> threading.Lock:
    """For the few places that are entered by several threads of a blocking caller."""
    return threading.Lock()
