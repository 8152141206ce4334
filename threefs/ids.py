"""Typed identifiers. Plain integers and tuples at run time, distinct for the type checker."""

import struct
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
TargetId = NewType("TargetId", int)
ChainId = NewType("ChainId", int)
TableId = NewType("TableId", int)
InodeId = NewType("InodeId", int)

#: 16 random bytes, new in every client process.
ClientId = NewType("ClientId", bytes)
#: 16 random bytes, one per open for writing.
SessionId = NewType("SessionId", bytes)

ROOT = InodeId(1)

_CHUNK_KEY = struct.Struct(">QI")


class ChunkId(NamedTuple):
    """The number-th chunk of a file, counted from 0 (`index` on the wire: a tuple has an index of its own)."""

    inode: int
    number: int

    def __str__(self) -> str:
        """For messages, behind the word "chunk"."""
        return f"{self.number} of inode {self.inode}"

    def key(self) -> bytes:
        """12 bytes that sort by inode, then index."""
        return _CHUNK_KEY.pack(self.inode, self.number)

    @classmethod
    def of_key(cls, key: bytes) -> "ChunkId":
        return cls(*_CHUNK_KEY.unpack(key))


class WriteIdentity(NamedTuple):
    """Names one write, however often it is sent (invariant I6)."""

    client: bytes
    channel: int
    seq: int
