"""Inodes as replies carry them, serialized.

Most are shown as they are stored: to take such a record apart and to put it together again would cost as much as to
find it.
"""

from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta.namespace import Namespace

#: An inode's record begins with its number and its type, as protobuf writes them: tag, eight bytes, tag, one byte.
_TYPE_AT = 10
_INODE_TAG, _TYPE_TAG_AT, _TYPE_TAG = 0x09, 9, 0x10


async def shown(names: Namespace, body: bytes, key: bytes) -> bytes:
    """Of what is stored as `body`. Raises Corrupt."""
    if is_plain(body):
        return body
    return (await names.shown(records.parsed(body, pb.Inode, key))).SerializeToString()


def is_plain(body: bytes) -> bool:
    """Of an inode that is shown as it is stored: of anything but a directory."""
    return (
        len(body) > _TYPE_AT
        and body[0] == _INODE_TAG
        and body[_TYPE_TAG_AT] == _TYPE_TAG
        and body[_TYPE_AT] != pb.DIRECTORY
    )
