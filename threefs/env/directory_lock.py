"""A data directory belongs to one process at a time."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from threefs.errors import NotADirectory, PermissionDenied, Unavailable

_NAME = "lock"


@contextlib.contextmanager
def owned(path: Path) -> Iterator[None]:
    """Make the directory if need be, and keep every other process out. Raises Unavailable, which names who has it,
    NotADirectory.

    The kernel lets go of it when the process ends, however it ends: so whoever has it knows that nobody before serves
    what lies there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        raise NotADirectory(f"{path} is not a directory; name a directory, or one that is to be made") from None
    fd = os.open(path / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise Unavailable(f"{path} is in use by process {holder}") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def close_to_others(path: Path) -> None:
    """Take from everybody else what a directory grants them: then nothing below it can be reached, whatever its own
    mode is. Raises PermissionDenied if it belongs to another user, who would go on having it."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise PermissionDenied(
            f"{path} belongs to user {found.st_uid}, not to user {os.geteuid()}, who runs this; `chown` one of them"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)
