"""Bytes of a file that are just coming or going: a reader that finds a hole there waits until it is known what it is.

An append gets its place from the meta service before its bytes are written, so a later one may be there already. A cut
removes bytes before it changes the length. In both cases the inode says so, and a hole in that range is neither what
was there before nor what will be there.
"""

from hashlib import blake2b

from threefs.wire import meta_pb2 as pb


def writer_of(session: bytes) -> int:
    """The number that stands for a write session where others see it: with the session itself they could end it."""
    return int.from_bytes(blake2b(session, digest_size=8).digest(), "big")


def is_in_flux(inode: pb.Inode, offset: int, end: int, session: bytes = b"") -> bool:
    """Whether a hole between `offset` and `end` may be one only for now; but for what the own session appends."""
    if inode.cutting and end >= inode.cutting:
        return True
    if not inode.appends:
        return False
    own = writer_of(session) if session else 0
    return any(one.offset < end and offset < one.end and one.writer != own for one in inode.appends)
