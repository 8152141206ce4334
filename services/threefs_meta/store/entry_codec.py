"""The stored form of directory entries: one entry, some, or thousands as columns.

An entry is an EntryRecord. It is read and written without a protobuf message, because every component of every path
reads one. Nearly all stored entries have one form of 16 bytes, so thousands of them are a table, from which no object
is made per entry. Their checksums are computed for all rows together, byte by byte: CRC32C is linear, so the checksum
of a row is that of a row of zeros, changed by what each byte contributes at its place.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from threefs.checksums import crc32c_behind
from threefs.errors import Corrupt
from threefs.kv import records
from threefs.kv.engine_api import Pair
from threefs.kv.records import FORMAT, FORMAT_CRC
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import EntryRecord
from threefs_meta.store import keys

#: An entry as protobuf writes it: the tag of `inode`, eight bytes; the tag of `type`, a number below 128.
_FORM = struct.Struct("<BQBB")
INODE_TAG, TYPE_TAG = 0x09, 0x10
#: The same as a record, behind the format and the checksum.
_STORED = struct.Struct("<BIBQBB")
_STORED_BYTES = _STORED.size
_BODY_AT = _STORED_BYTES - _FORM.size
_unpack = _STORED.unpack


class Entry(NamedTuple):
    """The inode that an entry names."""

    inode: int
    type: pb.InodeType


_new_tuple = tuple.__new__  # three times as fast as the constructor of a named tuple


def encode(entry: Entry) -> bytes:
    inode, kind = entry
    return records.encode_body(_FORM.pack(INODE_TAG, inode, TYPE_TAG, kind))


def decode(value: bytes, key: bytes) -> Entry:
    """Raises Corrupt."""
    if len(value) == _STORED_BYTES:
        form, checksum, inode_tag, inode, type_tag, kind = _unpack(value)
        usual = form == FORMAT and inode_tag == INODE_TAG and type_tag == TYPE_TAG and kind < 128
        if usual and checksum == crc32c_behind(FORMAT_CRC, value[_BODY_AT:]):
            return _new_tuple(Entry, (inode, kind))
    body = records.body(value, key)
    record = records.parsed(body, EntryRecord, key)
    return Entry(record.inode, record.type)


def decode_many(values: Iterable[bytes | None], rows: Iterable[bytes]) -> list[Entry | Corrupt | None]:
    """The same as `decode` of each value; None where the value is None."""
    found: list[Entry | Corrupt | None] = []
    put = found.append
    # The same as `decode`, inlined: a call and a tuple per entry would cost more than the rest.
    for value, key in zip(values, rows, strict=True):
        if value is None:
            put(None)
            continue
        if len(value) == _STORED_BYTES:
            form, checksum, inode_tag, inode, type_tag, kind = _unpack(value)
            usual = form == FORMAT and inode_tag == INODE_TAG and type_tag == TYPE_TAG and kind < 128
            if usual and checksum == crc32c_behind(FORMAT_CRC, value[_BODY_AT:]):
                put(_new_tuple(Entry, (inode, kind)))
                continue
        try:
            put(decode(value, key))
        except Corrupt as error:
            put(error)
    return found


_ROW = np.dtype(
    [
        ("format", "u1"),
        ("checksum", "<u4"),
        ("inode_tag", "u1"),
        ("inode", "<u8"),
        ("type_tag", "u1"),
        ("type", "u1"),
    ]
)
#: Fewer entries are decoded one by one. numpy is faster for more, but directories are listed rarely, and its code takes
#: long to come back into the processor's caches.
_MIN_VECTORIZED = 256
_BODY_BYTES = _FORM.size
_ZEROS = crc32c_behind(FORMAT_CRC, bytes(_BODY_BYTES))


def _contributions() -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """The summand of each value of each byte of a body in its checksum: 256 numbers for the first byte, and so on."""
    table = np.zeros((_BODY_BYTES, 256), np.uint32)
    for place in range(_BODY_BYTES):
        for value in range(256):
            body = bytearray(_BODY_BYTES)
            body[place] = value
            table[place, value] = crc32c_behind(FORMAT_CRC, bytes(body)) ^ _ZEROS
    return table.ravel()


_CONTRIBUTIONS = _contributions()
_PLACES = np.arange(_BODY_BYTES) * 256


class EntryColumns(NamedTuple):
    names: bytes  # each ends with a zero byte
    inodes: bytes  # 8 bytes each, little-endian
    types: bytes  # 1 byte each


def of_entries(pairs: Sequence[Pair]) -> EntryColumns:
    """The columns of stored entries. Raises Corrupt."""
    names = b"".join([name + b"\0" for name in keys.names_of([key for key, _ in pairs])])
    values = [value for _, value in pairs]
    if len(values) > _MIN_VECTORIZED and set(map(len, values)) == {_ROW.itemsize}:
        stored = b"".join(values)
        rows = np.frombuffer(stored, _ROW)
        if _are_usual(rows, stored):
            return EntryColumns(names, rows["inode"].tobytes(), rows["type"].tobytes())
    found = [decode(value, key) for key, value in pairs]
    inodes = struct.pack(f"<{len(found)}Q", *[entry.inode for entry in found])
    return EntryColumns(names, inodes, bytes([entry.type if 0 < entry.type < 128 else 0 for entry in found]))


def numbers(inodes: bytes) -> Sequence[int]:
    """The column of inodes as numbers."""
    return struct.unpack(f"<{len(inodes) // 8}Q", inodes)


def _are_usual(rows: "np.ndarray[tuple[int], np.dtype[np.void]]", stored: bytes) -> bool:
    """Whether all rows have the usual form and the right checksum."""
    octets = np.frombuffer(stored, np.uint8).reshape(-1, _ROW.itemsize)
    changes = np.bitwise_xor.reduce(_CONTRIBUTIONS[_PLACES + octets[:, _BODY_AT:]], axis=1)
    good = changes ^ np.uint32(_ZEROS) == rows["checksum"]
    good &= rows["format"] == FORMAT
    good &= rows["inode_tag"] == INODE_TAG
    good &= rows["type_tag"] == TYPE_TAG
    good &= rows["type"] < 128
    return bool(good.all())
