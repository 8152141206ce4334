"""The error numbers that programs on the mount get."""

import errno
import os

from threefs.errors import DiskFailed, Internal, MaybeCommitted, OutcomeUnknown, Retry, ThreefsError

#: The kernel takes ENOSYS as "never ask again". The others mean nothing to a program that uses files.
_FOREIGN = {errno.ENOSYS, errno.EPROTO, errno.EMSGSIZE, errno.EBADMSG}
_BROKEN = (OutcomeUnknown, Internal, DiskFailed, MaybeCommitted)


def of(error: BaseException) -> int:
    """The number of an error. Errors that a repeat cannot mend have their own; of the others, those without an answer
    within the deadline are ETIMEDOUT, and those with an unknown outcome or a broken service are EIO."""
    if not isinstance(error, ThreefsError):
        return (isinstance(error, OSError) and error.errno) or errno.EIO
    if error.retry is Retry.NEVER:
        return errno.EIO if error.posix in _FOREIGN else error.posix
    return errno.EIO if isinstance(error, _BROKEN) else errno.ETIMEDOUT


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
