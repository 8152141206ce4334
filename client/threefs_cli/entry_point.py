"""Where the program `threefs` begins. Ctrl-C ends it without a traceback also while its modules are being imported."""

import os
import signal
from types import FrameType


def main() -> None:
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not behind nohup
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    from threefs_cli.main import main as commands

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands()


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing was begun, so nothing is to be tidied up."""
    os._exit(128 + number)
