"""Signals that stop a command and what it has started. SIGHUP, of a closed terminal, stops none that ignores it, as
under nohup."""

import asyncio
import signal
from collections.abc import Callable, Sequence


def handle(numbers: Sequence[signal.Signals], handler: Callable[[], object]) -> None:
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, handler)


def cancel_current_task() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP cancel this task. A second one changes nothing: a shell repeats the SIGHUP of its
    terminal, and an impatient user Ctrl-C, which would break off the stop."""
    task = asyncio.current_task()
    assert task is not None, "a task calls it"

    def cancel() -> None:
        if not task.cancelling():
            task.cancel()

    handle((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), cancel)
