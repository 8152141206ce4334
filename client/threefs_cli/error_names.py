"""Adds the name of a file to errors of the kernel that lack one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from threefs.errors import ThreefsError


@contextlib.contextmanager
def with_filename(path: Path | str) -> Iterator[None]:
    """Raise an OSError of the block again with the name `path`, unless it names a file: the kernel names none when a
    write fails, for example on a full disk."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ThreefsError) or error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
