"""The lock of a data directory, which belongs to one process at a time."""

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
    """Make the directory if it is missing, and lock it. Raises Unavailable, which names the process that has the lock,
    NotADirectory.

    The kernel releases the lock when the process ends in any way. So a process that has it knows that no earlier
    process still serves from this directory.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        raise NotADirectory(f"{path} is not a directory; name a directory, or a path where one can be made") from None
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
    """Remove the permissions of all other users from a directory. Then they cannot reach any file below it, whatever
    the mode of the file is. Raises PermissionDenied as `check_owner`."""
    check_owner(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        path.chmod(mode & ~0o077)


def check_owner(path: Path) -> None:
    """Raises PermissionDenied if a file or directory belongs to another user, who keeps access to all that is in it."""
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise PermissionDenied(
            f"{path} belongs to user {owner}, and this process to user {os.geteuid()}: run this as that user, or "
            "`chown` it if all that is in it can be trusted"
        )


def check_place(path: Path) -> None:
    """Raises PermissionDenied if the path belongs to another user, or, if it is missing and root would make it, the
    directory in which it would be made: that user could not use what root makes there."""
    there = next(each for each in (path, *path.parents) if each.exists())
    if there == path or os.geteuid() == 0:
        check_owner(there)
