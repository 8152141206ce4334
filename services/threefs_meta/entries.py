"""The stored form of a directory entry: an EntryRecord, read and written without a message, because there is one for
every step of every path."""

import struct
from typing import NamedTuple

from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord

#: As protobuf writes it: the tag of `inode`, eight bytes; the tag of `type`, a number below 128.
_FORM = struct.Struct("<BQBB")
_INODE_TAG, _TYPE_TAG = 0x09, 0x10


class Entry(NamedTuple):
    """What an entry names."""

    inode: int
    type: pb.InodeType


def encode(entry: Entry) -> bytes:
    inode, kind = entry
    return records.encode_body(_FORM.pack(_INODE_TAG, inode, _TYPE_TAG, kind))


def decode(value: bytes, key: bytes) -> Entry:
    """Raises Corrupt."""
    body = records.body(value, key)
    if len(body) == _FORM.size:
        inode_tag, inode, type_tag, kind = _FORM.unpack(body)
        if inode_tag == _INODE_TAG and type_tag == _TYPE_TAG and kind < 128:
            return Entry(inode, kind)
    record = records.parsed(body, EntryRecord, key)
    return Entry(record.inode, record.type)
