"""The directory of a local cluster: its user owns it, it is closed to others, and one command at a time has it."""

import contextlib
import fcntl
import stat
from collections.abc import Iterator
from pathlib import Path

from threefs.env.directory_lock import check_owner
from threefs.errors import AlreadyExists, NotADirectory, Unavailable
from threefs_cli import cluster_file

_LOCK_NAME = "lock"

#: The owner may grant a group read access, to share the key. Nobody else may read or write here.
_FORBIDDEN_MODE = 0o027


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Let one command at a time work on the directory, which is made if it is missing. Raises what `check` raises, and
    Unavailable."""
    check(directory)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    check(directory)  # again: another user may have made it meanwhile
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & _FORBIDDEN_MODE:
        directory.chmod(mode & ~_FORBIDDEN_MODE)
    lock = directory / _LOCK_NAME
    lock.touch(mode=0o600)
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another threefs command is at work in {directory}") from None
        yield


def check(directory: Path) -> None:
    """Raises NotADirectory where a file lies at the directory or above it, PermissionDenied where the directory or the
    record in it is another user's, who could choose what this user starts and stops, and AlreadyExists where the
    directory has something else than a cluster in it: its permissions and its files are of somebody else."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectory(f"{there} is a file; name a directory, existing or new")
    if there != directory:
        return
    check_owner(directory)
    if cluster_file.load(directory) is not None:
        check_owner(directory / cluster_file.NAME)
    elif any(entry.name not in (_LOCK_NAME, cluster_file.UNFINISHED) for entry in directory.iterdir()):
        raise AlreadyExists(f"{directory} is not empty and holds no cluster; choose another directory")
