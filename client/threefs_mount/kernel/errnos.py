"""Which error number a program on the mount sees."""

import errno
import os

from threefs.errors import DiskFailed, Internal, MaybeCommitted, OutcomeUnknown, Retry, ThreefsError

#: The kernel takes ENOSYS as "never ask again", and the others mean nothing to a program that reads a file.
_FOREIGN = {errno.ENOSYS, errno.EPROTO, errno.EMSGSIZE, errno.EBADMSG}
_BROKEN = (OutcomeUnknown, Internal, DiskFailed, MaybeCommitted)


def of(error: BaseException) -> int:
    """What the caller could not know better has its own number; the rest of the cluster's troubles are EIO or, when
    nobody answered within the deadline, ETIMEDOUT."""
    if not isinstance(error, ThreefsError):
        return (isinstance(error, OSError) and error.errno) or errno.EIO
    if error.retry is Retry.NEVER:
        return errno.EIO if error.posix in _FOREIGN else error.posix
    return errno.EIO if isinstance(error, _BROKEN) else errno.ETIMEDOUT


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
