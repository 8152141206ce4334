"""Errors of this machine's kernel, with the name that the user knows."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from threefs.errors import ThreefsError


@contextlib.contextmanager
def with_filename(path: Path | str) -> Iterator[None]:
    """Whatever fails within is about `path`, unless the error names a file: the kernel names none when a write fails,
    as on a full disk. Raises the same OSError with the name."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ThreefsError) or error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
