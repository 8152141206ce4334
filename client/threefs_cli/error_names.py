"""Gives errors of the kernel the name of a file that the user knows."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from threefs.errors import ThreefsError


@contextlib.contextmanager
def with_filename(path: Path | str, *, instead: bool = False) -> Iterator[None]:
    """Raise an OSError of the block again with the name `path`, unless it names a file: the kernel names none when a
    write fails, for example on a full disk. With `instead` it gets this name in any case: its own one is temporary, or
    one within a directory that it does not name."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ThreefsError) or error.errno is None or (error.filename is not None and not instead):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
