"""A thread beside a program that blocks: for work that goes on while the program does something else."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

#: The result of a call that a side thread makes: `done()`, `result()`.
PendingCall = Future


class SideThread:
    """Makes calls in the order of `start`. The program does not end before the calls that were started."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def start(self, function: Callable[[], T]) -> "PendingCall[T]":
        return self._executor.submit(function)

    def close(self) -> None:
        """Return when every call has ended. No call may come after this."""
        self._executor.shutdown()


def new_condition() -> threading.Condition:
    """The primitive with which threads of one program wait for each other."""
    return threading.Condition()
