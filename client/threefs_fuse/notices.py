"""What the file system tells the kernel without having been asked."""

from struct import Struct

from threefs_fuse import protocol, replies

_INVAL_INODE = Struct("=Qqq")
_INVAL_ENTRY = Struct("=QII")


def attributes_changed(inode: int) -> bytes:
    """The kernel asks for the attributes when it needs them next. It never waits for anything to take this note."""
    return _notice(protocol.NOTIFY_INVAL_INODE, _INVAL_INODE.pack(inode, -1, 0))


def content_changed(inode: int, offset: int = 0, length: int = 0) -> bytes:
    """The kernel drops pages (length 0: all from there on). It may wait for reads of them to be answered."""
    return _notice(protocol.NOTIFY_INVAL_INODE, _INVAL_INODE.pack(inode, offset, length))


def name_changed(parent: int, name: bytes) -> bytes:
    """The kernel looks the name up again. It may wait for what is going on in that directory."""
    return _notice(protocol.NOTIFY_INVAL_ENTRY, _INVAL_ENTRY.pack(parent, len(name), 0) + name + b"\0")


def _notice(code: int, body: bytes) -> bytes:
    return replies.HEADER.pack(replies.HEADER.size + len(body), code, 0) + body
