"""The local file that a copy out of the cluster makes, or replaces."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from threefs_cli.safe_write import SafeWriter

from threefs.env import standard_streams

_NEW = 0o666
_PERMISSIONS = 0o777
_OF_GROUP = 0o070
#: Not O_CREAT: with it, nobody opens files of others in a directory like /tmp (fs.protected_regular).
_IN_PLACE = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_file(local: str | bytes | os.PathLike[str]) -> Iterator[int]:
    """The descriptor of a new local file, which takes the name and the permissions of an existing one at the end of the
    block. One behind a link is replaced there. Written in place are: a descriptor of this process (/dev/stdout), a file
    of another user, which would not be that user's any more, and one in a directory that takes no new names. Raises
    OSError."""
    local = os.fsdecode(local)
    descriptor = standard_streams.descriptor_of(local)
    if descriptor is not None:
        with open(os.dup(descriptor), "wb", buffering=0) as stream:
            yield stream.fileno()
        return
    if local.endswith("/"):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), local)
    place = os.path.realpath(local)
    old = os.stat(place) if os.path.exists(place) else None
    if old is not None and stat.S_ISREG(old.st_mode) and not _may_be_replaced(place, old):
        with open(os.open(place, _IN_PLACE), "wb", buffering=0) as same:
            _drop_privileges(same.fileno())
            yield same.fileno()
        return
    writer = SafeWriter(os.path.dirname(place), special_files=True)
    with writer.new_file(place, _NEW if old is None else stat.S_IMODE(old.st_mode)) as target:
        if old is not None and stat.S_ISREG(os.fstat(target).st_mode):
            _take_over(target, old)
        yield target


def _may_be_replaced(place: str, old: os.stat_result) -> bool:
    return old.st_uid == os.geteuid() and os.access(os.path.dirname(place), os.W_OK | os.X_OK)


def _drop_privileges(same: int) -> None:
    """The set-user-id bit goes with any write, but for one of root."""
    mode = stat.S_IMODE(os.fstat(same).st_mode)
    if mode & ~_PERMISSIONS:
        with suppress(PermissionError):  # of a user who neither owns the file nor is root
            os.fchmod(same, mode & _PERMISSIONS)


def _take_over(target: int, old: os.stat_result) -> None:
    """The group and the permissions of the old file; as after any write, without the set-user-id bit. What a group that
    this user is not in might do, no other group may."""
    mode = stat.S_IMODE(old.st_mode) & _PERMISSIONS
    if os.fstat(target).st_gid != old.st_gid:
        try:
            os.fchown(target, -1, old.st_gid)
        except OSError:  # also EINVAL: a group that has no number in this user namespace
            mode &= ~_OF_GROUP
    os.fchmod(target, mode)
