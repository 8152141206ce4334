"""Inodes as replies carry them, serialized.

Replies show most inodes as they are stored: to parse and serialize such a record would cost as much as to find it.
"""

from collections.abc import Iterable

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

#: An inode's record begins with its number and its type, as protobuf writes them: tag, eight bytes, tag, one byte.
_TYPE_AT = 10
_INODE_TAG, _TYPE_TAG_AT, _TYPE_TAG = 0x09, 9, 0x10


async def read_many(ns: Namespace, inodes: Iterable[int]) -> dict[int, bytes]:
    """The stored form of inodes that entries name, by number. Raises Corrupt."""
    # In key order, so that the store mostly steps from one record to the next.
    numbers = sorted(inodes)
    rows = keys.inodes(numbers)
    found: dict[int, bytes] = {}
    for number, body in zip(numbers, records.bodies(await ns.tx.get_many(rows), rows), strict=True):
        if body is None:
            raise Corrupt(f"an entry names inode {number}, which does not exist")
        if isinstance(body, Corrupt):
            raise body
        found[number] = body
    return found


async def with_times(ns: Namespace, body: bytes, key: bytes) -> bytes:
    """The shown form of an inode that is stored as `body`. Raises Corrupt."""
    if is_plain(body):
        return body
    return (await ns.with_times(records.parsed(body, pb.Inode, key))).SerializeToString()


def is_plain(body: bytes) -> bool:
    """Whether this inode is shown as it is stored: it is no directory."""
    return (
        len(body) > _TYPE_AT
        and body[0] == _INODE_TAG
        and body[_TYPE_TAG_AT] == _TYPE_TAG
        and body[_TYPE_AT] != pb.DIRECTORY
    )
