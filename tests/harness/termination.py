"""How a program that has started processes and mounts ends by a signal: by an exception, so that they go away."""

import signal
import sys
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Raise SystemExit at the first of these signals, and ignore the later ones.

    `make` passes on what it gets, and `timeout` and terminals signal the whole group, so one end comes as two signals.
    A second exception would break off what the first one has begun to tidy up.
    """
    for number in _NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as behind nohup
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    for each in _NUMBERS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)
