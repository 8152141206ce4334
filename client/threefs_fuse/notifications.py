"""What the file system tells the kernel without having been asked."""

from struct import Struct

from threefs_fuse import protocol, replies

_INVAL_INODE = Struct("=Qqq")


def attributes_changed(inode: int) -> bytes:
    """The kernel asks for the attributes when it needs them next. It never waits for anything to take this note."""
    return _changed(inode, -1)  # a negative offset: no pages


def content_changed(inode: int) -> bytes:
    """The same, and the kernel gives up the pages that it has. It waits for those that are being read or written, so
    requests have to be answered until it has taken this note."""
    return _changed(inode, 0)


def _changed(inode: int, offset: int) -> bytes:
    body = _INVAL_INODE.pack(inode, offset, 0)  # the length 0: to the end
    return replies.HEADER.pack(replies.HEADER.size + len(body), protocol.NOTIFY_INVAL_INODE, 0) + body
