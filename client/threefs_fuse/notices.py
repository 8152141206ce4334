"""What the file system tells the kernel without having been asked."""

from struct import Struct

from threefs_fuse import protocol, replies

_INVAL_INODE = Struct("=Qqq")


def attributes_changed(inode: int) -> bytes:
    """The kernel asks for the attributes when it needs them next. It never waits for anything to take this note."""
    body = _INVAL_INODE.pack(inode, -1, 0)  # a negative offset: no pages
    return replies.HEADER.pack(replies.HEADER.size + len(body), protocol.NOTIFY_INVAL_INODE, 0) + body
