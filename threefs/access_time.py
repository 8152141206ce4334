"""Access times are stored as Linux does with `relatime`, because one change per read would be too many.

A read changes the access time if that is not later than the last change of the file, so that one sees whether the file
was read since; otherwise once a day.
"""

from threefs.wire import meta_pb2 as pb

DAY_NS = 24 * 3600 * 10**9


def due_ns(inode: pb.Inode) -> int:
    """The moment from which a read changes the access time, in nanoseconds since 1970; 0: every read does."""
    if inode.atime_ns <= max(inode.mtime_ns, inode.ctime_ns):
        return 0
    return inode.atime_ns + DAY_NS
