"""When a read has to change the access time of a file, as Linux does with `relatime`.

If it is not behind the last change, so that one sees that the file was read since; else once a day.
"""

from threefs.wire import meta_pb2 as pb

DAY_NS = 24 * 3600 * 10**9


def due_ns(inode: pb.Inode) -> int:
    """From when on a read changes the access time; 0: any does."""
    if inode.atime_ns <= max(inode.mtime_ns, inode.ctime_ns):
        return 0
    return inode.atime_ns + DAY_NS
