"""The stored form of a directory entry: an EntryRecord, read and written without a message, because there is one for
every step of every path."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from threefs.checksums import crc32c_behind
from threefs.errors import Corrupt
from threefs.kv import records
from threefs.kv.records import FORMAT, FORMAT_CRC
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord

#: As protobuf writes it: the tag of `inode`, eight bytes; the tag of `type`, a number below 128.
_FORM = struct.Struct("<BQBB")
INODE_TAG, TYPE_TAG = 0x09, 0x10
#: The same in a record: behind the format and the checksum.
_STORED = struct.Struct("<BIBQBB")
_STORED_BYTES = _STORED.size
_BODY_AT = _STORED_BYTES - _FORM.size
_unpacked = _STORED.unpack


class Entry(NamedTuple):
    """What an entry names."""

    inode: int
    type: pb.InodeType


_made = tuple.__new__  # three times as quick as the constructor of a named tuple


def encode(entry: Entry) -> bytes:
    inode, kind = entry
    return records.encode_body(_FORM.pack(INODE_TAG, inode, TYPE_TAG, kind))


def decode(value: bytes, key: bytes) -> Entry:
    """Raises Corrupt."""
    if len(value) == _STORED_BYTES:
        form, checksum, inode_tag, inode, type_tag, kind = _unpacked(value)
        usual = form == FORMAT and inode_tag == INODE_TAG and type_tag == TYPE_TAG and kind < 128
        if usual and checksum == crc32c_behind(FORMAT_CRC, value[_BODY_AT:]):
            return _made(Entry, (inode, kind))
    body = records.body(value, key)
    record = records.parsed(body, EntryRecord, key)
    return Entry(record.inode, record.type)


def decode_many(values: Iterable[bytes | None], keys: Iterable[bytes]) -> list[Entry | Corrupt | None]:
    """As `decode` for each; None where no entry is."""
    found: list[Entry | Corrupt | None] = []
    put = found.append
    # Written out once more, without what calls and tuples of their own would cost.
    for value, key in zip(values, keys, strict=True):
        if value is None:
            put(None)
            continue
        if len(value) == _STORED_BYTES:
            form, checksum, inode_tag, inode, type_tag, kind = _unpacked(value)
            usual = form == FORMAT and inode_tag == INODE_TAG and type_tag == TYPE_TAG and kind < 128
            if usual and checksum == crc32c_behind(FORMAT_CRC, value[_BODY_AT:]):
                put(_made(Entry, (inode, kind)))
                continue
        try:
            put(decode(value, key))
        except Corrupt as error:
            put(error)
    return found
