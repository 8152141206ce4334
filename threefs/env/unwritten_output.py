"""Output that could not be written, as to a full disk.

Python keeps it in the buffer of the stream, tries again at its exit, and then ends with exit code 120, also when the
program has done all that it should.
"""

import contextlib
import os
import sys
from typing import TextIO


def give_up(stream: TextIO | None) -> None:
    """If what is in the buffer cannot be written now, nothing more is written to the stream. None: it was closed before
    the program began."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def last_word(text: str) -> None:
    """Say why the program ends, on stderr. Where that cannot be written, it still ends with its own exit code."""
    if sys.stderr is not None:  # else it would go to stdout
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)
    give_up(sys.stderr)
