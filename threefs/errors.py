"""The one error tree. Each leaf knows its wire code, its errno and whether a retry can help.

Leaves are `OSError`s, and where Python has a class of its own for the errno they are that too, so
`except FileNotFoundError` works on a threefs file as on a local one.
"""

import enum
import errno as _errno
from typing import Any

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "Cancelled",
    "ChainChanged",
    "ChecksumMismatch",
    "ChunkChanged",
    "ChunkLost",
    "ChunkNotFound",
    "Conflict",
    "ConnectionIdle",
    "ConnectionLost",
    "ConnectionRefused",
    "Corrupt",
    "CorruptChunk",
    "DeadlineExceeded",
    "Deadlock",
    "DiskFailed",
    "Fenced",
    "FileTooLarge",
    "InProgress",
    "Internal",
    "InvalidArgument",
    "InvalidSettings",
    "IsADirectory",
    "LayoutDiffers",
    "LimitExceeded",
    "LockLost",
    "Locked",
    "MaybeCommitted",
    "NameTooLong",
    "NoAttribute",
    "NoDataThere",
    "NoSpace",
    "NodeInUse",
    "NotADirectory",
    "NotAuthorised",
    "NotEmpty",
    "NotFound",
    "NotPrimary",
    "NotServing",
    "NotStaged",
    "NotSupported",
    "OutcomeUnknown",
    "Overloaded",
    "PeerClosed",
    "PermissionDenied",
    "ProtocolError",
    "QuotaExceeded",
    "ResultDropped",
    "ResultForgotten",
    "ResultTooLong",
    "Retry",
    "SessionLost",
    "StaleFence",
    "StaleIncarnation",
    "StaleWrite",
    "Stopping",
    "StrangeStore",
    "ThreefsError",
    "Throttled",
    "TooFewReplicas",
    "TooLarge",
    "TooManyLinks",
    "TooManyLocks",
    "TooManySymlinks",
    "TooOld",
    "Unavailable",
    "UnknownMethod",
    "VersionGap",
    "WrongCluster",
    "WrongVersion",
    "error_of",
]


class Retry(enum.Enum):
    """The class of an error: whether and how a caller may repeat the call."""

    NEVER = "never"  # the same call will fail again
    SAFE = "safe"  # it had no effect: send it again after a pause
    REFRESH = "refresh"  # it had no effect: fetch the routing, then send it again
    UNKNOWN = "unknown"  # it may have had its effect: only send it again under the same identity


class ThreefsError(OSError):
    """Base of every error that threefs raises on purpose."""

    code = 1
    posix = _errno.EIO
    retry = Retry.NEVER

    def __init__(self, message: str = "") -> None:
        super().__init__(self.posix, message or (type(self).__doc__ or "").strip().rstrip("."))

    @property
    def message(self) -> str:
        return str(self.strerror)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes: an executor that cannot unpickle one ends all its workers."""
        return type(self), (self.message,), self.__dict__


# ---- the caller asked for something that cannot be ----


class InvalidArgument(ThreefsError, ValueError):
    """An argument is out of its range."""

    code, posix = 10, _errno.EINVAL


class NotFound(ThreefsError, FileNotFoundError):
    """No such file or directory."""

    code, posix = 11, _errno.ENOENT


class AlreadyExists(ThreefsError, FileExistsError):
    """It exists already."""

    code, posix = 12, _errno.EEXIST


class NotADirectory(ThreefsError, NotADirectoryError):
    """A component of the path is not a directory."""

    code, posix = 13, _errno.ENOTDIR


class IsADirectory(ThreefsError, IsADirectoryError):
    """It is a directory."""

    code, posix = 14, _errno.EISDIR


class NotEmpty(ThreefsError):
    """The directory is not empty."""

    code, posix = 15, _errno.ENOTEMPTY


class NameTooLong(ThreefsError):
    """A name or path is too long."""

    code, posix = 16, _errno.ENAMETOOLONG


class TooManySymlinks(ThreefsError):
    """Too many symbolic links on the path."""

    code, posix = 17, _errno.ELOOP


class TooManyLinks(ThreefsError):
    """The file has the most hard links that it may have."""

    code, posix = 18, _errno.EMLINK


class FileTooLarge(ThreefsError):
    """The file would grow beyond the largest file."""

    code, posix = 19, _errno.EFBIG


class PermissionDenied(ThreefsError, PermissionError):
    """The operation is not permitted."""

    code, posix = 20, _errno.EPERM


class NotSupported(ThreefsError):
    """Not supported."""

    code, posix = 21, _errno.ENOTSUP


class SessionLost(ThreefsError):
    """The file handle is no longer valid."""

    code, posix = 22, _errno.ESTALE


class AccessDenied(ThreefsError, PermissionError):
    """The permission bits do not allow it."""

    code, posix = 24, _errno.EACCES


class NoAttribute(ThreefsError):
    """There is no such extended attribute."""

    code, posix = 25, _errno.ENODATA


class ResultTooLong(ThreefsError):
    """The result does not fit into what the caller has room for."""

    code, posix = 26, _errno.ERANGE


class QuotaExceeded(ThreefsError):
    """The quota is used up."""

    code, posix = 27, _errno.EDQUOT


class Locked(ThreefsError, BlockingIOError):
    """Another owner holds a lock on it."""

    code, posix = 28, _errno.EAGAIN


class NoDataThere(ThreefsError):
    """There is no data or no hole from that offset on."""

    code, posix = 29, _errno.ENXIO


class LayoutDiffers(ThreefsError):
    """New files in the directory get another layout than this precreated file has."""

    code, posix = 79, _errno.EINVAL


class InvalidSettings(ThreefsError, ValueError):
    """The settings are not valid."""

    code, posix = 23, _errno.EINVAL


# ---- between two peers ----


class Unavailable(ThreefsError, ConnectionError):
    """The service cannot be reached."""

    code, posix, retry = 30, _errno.EHOSTUNREACH, Retry.SAFE


class ConnectionLost(ThreefsError, ConnectionError):
    """The connection ended before the answer came."""

    code, posix, retry = 31, _errno.ECONNRESET, Retry.UNKNOWN


class DeadlineExceeded(ThreefsError, TimeoutError):
    """No answer within the deadline."""

    code, posix, retry = 32, _errno.ETIMEDOUT, Retry.UNKNOWN


class Cancelled(ThreefsError):
    """The call was cancelled."""

    code, posix, retry = 33, _errno.ECANCELED, Retry.UNKNOWN


class ProtocolError(ThreefsError):
    """The peer does not speak this protocol."""

    code, posix = 34, _errno.EPROTO


class WrongVersion(ThreefsError):
    """The peer speaks another version of the protocol."""

    code, posix = 35, _errno.EPROTO


class WrongCluster(ThreefsError):
    """The peer belongs to another cluster."""

    code, posix = 36, _errno.EPROTO


class NotAuthorised(ThreefsError, PermissionError):
    """The key of the cluster is missing or wrong."""

    code, posix = 37, _errno.EACCES


class LimitExceeded(ThreefsError):
    """A message is larger than the limit."""

    code, posix = 38, _errno.EMSGSIZE


class UnknownMethod(ThreefsError):
    """The service has no such method."""

    code, posix = 39, _errno.ENOSYS


class Overloaded(ThreefsError):
    """The service has too many calls in flight."""

    code, posix, retry = 40, _errno.EBUSY, Retry.SAFE


class Stopping(ThreefsError):
    """The service is stopping."""

    code, posix, retry = 41, _errno.EHOSTDOWN, Retry.SAFE


class Internal(ThreefsError):
    """The service failed on this call; its log has the reason."""

    code, posix, retry = 42, _errno.EIO, Retry.UNKNOWN


class NotPrimary(ThreefsError):
    """This manager is not the primary."""

    code, posix, retry = 43, _errno.EAGAIN, Retry.SAFE


class PeerClosed(ConnectionLost):
    """The peer closed the connection, by itself or because its process has ended."""

    code = 44


class ConnectionRefused(Unavailable):
    """Nothing listens at the address."""

    code, posix = 45, _errno.ECONNREFUSED


class StaleIncarnation(ThreefsError):
    """A newer process of the node has registered since."""

    code, posix = 46, _errno.ESTALE


class NodeInUse(ThreefsError):
    """Another process that is alive is this node."""

    code, posix, retry = 47, _errno.EADDRINUSE, Retry.SAFE


class ConnectionIdle(Unavailable):
    """The service closed the connection as idle: no call that it has not answered was begun."""

    code = 48


# ---- chunks and chains ----


class ChainChanged(ThreefsError):
    """The chain has another version than the request."""

    code, posix, retry = 50, _errno.EAGAIN, Retry.REFRESH


class NotServing(ThreefsError):
    """The target does not serve, or is not the head of its chain."""

    code, posix, retry = 51, _errno.EAGAIN, Retry.REFRESH


class ChunkNotFound(ThreefsError, FileNotFoundError):
    """No such chunk."""

    code, posix = 52, _errno.ENOENT


class VersionGap(ThreefsError):
    """The write is not the next version of the chunk."""

    code, posix, retry = 53, _errno.EAGAIN, Retry.SAFE


class ChecksumMismatch(ThreefsError):
    """The payload does not match its checksum."""

    code, posix, retry = 54, _errno.EBADMSG, Retry.SAFE


class CorruptChunk(ThreefsError):
    """The stored bytes do not match their checksum."""

    code, posix = 55, _errno.EIO


#: What the system says when a disk is full, or the quota of its user.
FULL_DISK = (_errno.ENOSPC, _errno.EDQUOT)
#: What it says when there are no descriptors or no memory left, which is nothing that a disk is to blame for.
EXHAUSTED = (_errno.EMFILE, _errno.ENFILE, _errno.ENOMEM)


class NoSpace(ThreefsError):
    """The disk is full."""

    code, posix = 56, _errno.ENOSPC


class OutcomeUnknown(ThreefsError):
    """The deadline passed before the write was confirmed; it may or may not have been applied."""

    code, posix, retry = 57, _errno.EIO, Retry.UNKNOWN


class StaleWrite(ThreefsError):
    """A newer write of the same channel has been applied already."""

    code, posix = 58, _errno.EINVAL


class DiskFailed(ThreefsError):
    """The disk failed."""

    code, posix, retry = 59, _errno.EIO, Retry.REFRESH


class TooManyLocks(ThreefsError):
    """A client holds the most locks on the file that it may."""

    code, posix = 60, _errno.ENOLCK


class Deadlock(ThreefsError):
    """The wait for this lock would never end: its owner waits for a lock that this caller holds."""

    code, posix = 61, _errno.EDEADLK


class ChunkChanged(ThreefsError):
    """The chunk has another version than the change was made for (perhaps because the change was applied already)."""

    code, posix = 62, _errno.EAGAIN


class ChunkLost(CorruptChunk):
    """No replica has these bytes undamaged any more: overwrite or remove them, or restore the file from a backup."""

    code = 63


class ResultForgotten(ThreefsError):
    """Too many others have written the chunk since this write was made: it is refused, and may be made anew."""

    code, posix, retry = 64, _errno.EAGAIN, Retry.SAFE

    def __init__(self, message: str = "", version: int = 0) -> None:
        super().__init__(message)
        self.version = version  # the one to make the write anew from


class ResultDropped(ThreefsError):
    """This write was sent before, and too many others have written the chunk since: nobody knows any more whether it
    was applied, so no repeat will tell."""

    code, posix = 78, _errno.EIO


class NotStaged(ThreefsError):
    """The target does not have the version that was forwarded without its payload: send the payload."""

    code, posix, retry = 80, _errno.EAGAIN, Retry.SAFE


class InProgress(ThreefsError):
    """The write goes on, and its result is not there yet: a repeat gets it."""

    code, posix, retry = 81, _errno.EINPROGRESS, Retry.UNKNOWN


class TooFewReplicas(ThreefsError):
    """The chain has fewer serving targets than it needs to take writes."""

    code, posix, retry = 68, _errno.EIO, Retry.REFRESH


# ---- the transactional store ----


class StaleFence(ThreefsError):
    """The write may belong to a lock that was taken away since."""

    code, posix = 66, _errno.EIO


class LockLost(ThreefsError):
    """A lock on the file was lost, and what was written under it and not synced; close the file and begin anew."""

    code, posix = 67, _errno.EIO


class Conflict(ThreefsError):
    """Another transaction changed what this one read."""

    code, posix, retry = 70, _errno.EAGAIN, Retry.SAFE


class TooOld(ThreefsError):
    """The transaction lived too long."""

    code, posix, retry = 71, _errno.EAGAIN, Retry.SAFE


class Throttled(ThreefsError):
    """The store asks for a pause."""

    code, posix, retry = 72, _errno.EAGAIN, Retry.SAFE


class MaybeCommitted(ThreefsError):
    """The store did not say whether the transaction committed."""

    code, posix, retry = 73, _errno.EIO, Retry.UNKNOWN


class TooLarge(ThreefsError):
    """A key, a value or the transaction is larger than the store takes."""

    code, posix = 74, _errno.E2BIG


class Corrupt(ThreefsError):
    """A stored record does not match its checksum."""

    code, posix = 75, _errno.EIO


class Fenced(ThreefsError):
    """Another manager has taken over."""

    code, posix, retry = 76, _errno.EPERM, Retry.SAFE


class StrangeStore(ThreefsError):
    """The store is empty, another one, or an older copy than the one that the cluster knows."""

    code, posix = 77, _errno.EPROTO


def _leaves(cls: type[ThreefsError]) -> list[type[ThreefsError]]:
    found = [cls]
    for sub in cls.__subclasses__():
        found += _leaves(sub)
    return found


_BY_CODE = {leaf.code: leaf for leaf in _leaves(ThreefsError)}
assert len(_BY_CODE) == len(_leaves(ThreefsError)), "two errors share a wire code"


def error_of(code: int, message: str = "") -> ThreefsError:
    """The error that a peer sent as `code`; a code of a newer peer becomes a plain ThreefsError."""
    return _BY_CODE.get(code, ThreefsError)(message)
