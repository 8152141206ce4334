"""Threads for work that blocks: `await worker.run(function, *args)` runs it off the event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Worker(Protocol):
    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """The result of `function(*args)`. Cancelling the wait does not stop a call that has begun."""
        ...

    async def close(self) -> None:
        """Return when every call has ended. No call may come after this."""
        ...


class ThreadWorker:
    """Real threads, started when first needed. One thread runs its calls in the order of `run`."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    async def close(self) -> None:
        # shutdown() joins the threads, so it must not run on the loop; the executor of the loop is there for that.
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)


async def run_in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """The result of `function(*args)`, in one of the threads that the running loop has for such calls. A forked child
    has a loop, and so threads, of its own."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


class StopFlag:
    """Tells threads to stop. They may also wait for it, as a pause that it cuts short."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Whether it was set before `seconds` were over."""
        return self._event.wait(seconds)
