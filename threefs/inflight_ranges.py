"""Ranges in flight: bytes of a file that are being appended or removed now, so that a hole there is not final.

An append gets its place from the meta service before its bytes are written, so a later append may be there already. A
truncation removes bytes before it changes the length. In both cases the inode names the range. A reader that finds a
hole in it reads again after a pause, because the hole is neither what was there before nor what will be there.
"""

from hashlib import blake2b

from threefs.wire import meta_pb2 as pb


def writer_of(session: bytes) -> int:
    """The number that names a write session to other clients. With the session id itself they could end it."""
    return int.from_bytes(blake2b(session, digest_size=8).digest(), "big")


def is_in_flight(inode: pb.Inode, offset: int, end: int, session: bytes = b"") -> bool:
    """Whether a hole between `offset` and `end` may not be final. Appends of the own `session` do not count."""
    if inode.cutting and end >= inode.cutting:
        return True
    if not inode.appends:
        return False
    own = writer_of(session) if session else 0
    return any(one.offset < end and offset < one.end and one.writer != own for one in inode.appends)
