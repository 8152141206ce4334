"""Where the program `threefs` begins. Ctrl-C ends it without a traceback also while its modules are being imported."""

import io
import os
import signal
import sys
from types import FrameType


def main() -> None:
    _fill_standard_streams()
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not behind nohup
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    from threefs_cli.main import main as commands

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    commands()


def _fill_standard_streams() -> None:
    """Give the program the standard streams that it was started without (`<&-`, `>&-`), in a form whose use fails.

    Otherwise a connection would get one of their numbers: output would go into it, and uvloop would abort the process.
    """
    for file, name, mode in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_RDONLY)):
        try:
            os.fstat(file)
        except OSError:
            opened = os.open(os.devnull, mode)  # takes the smallest free number
            assert opened == file, f"descriptor {file} is free"
            raw = io.FileIO(file, "w" if file else "r", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, write_through=True))


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing was begun, so nothing is to be tidied up."""
    os._exit(128 + number)
