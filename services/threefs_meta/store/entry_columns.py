"""Thousands of entries at once, as columns: what they name is never made an object of its own.

Nearly all stored entries have one form of 16 bytes, so many of them are a table, and their checksums are looked up
byte by byte for all rows together: CRC32C is linear, so the checksum of a row is that of a row of zeros, changed by
what each byte contributes at its place.
"""

from collections.abc import Sequence
from struct import pack, unpack
from typing import NamedTuple

import numpy as np

from threefs.checksums import crc32c_behind
from threefs.kv.engine_api import Pair
from threefs.kv.records import FORMAT, FORMAT_CRC
from threefs_meta.store import entry_codec, keys

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
_BODY_AT = 5
#: So many are decoded one by one. A directory is listed now and then, and numpy, which is quicker for many,
#: takes long to be back in the processor's caches.
_MIN_VECTORIZED = 256
_BODY_BYTES = _ROW.itemsize - _BODY_AT
_ZEROS = crc32c_behind(FORMAT_CRC, bytes(_BODY_BYTES))


def _contributions() -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    """Of each value of each byte of a body to its checksum, 256 for the first byte and so on."""
    table = np.zeros((_BODY_BYTES, 256), np.uint32)
    for place in range(_BODY_BYTES):
        for value in range(256):
            body = bytearray(_BODY_BYTES)
            body[place] = value
            table[place, value] = crc32c_behind(FORMAT_CRC, bytes(body)) ^ _ZEROS
    return table.ravel()


_CONTRIBUTIONS = _contributions()
_PLACES = np.arange(_BODY_BYTES) * 256


class Columns(NamedTuple):
    names: bytes  # each ends with a zero byte
    inodes: bytes  # 8 bytes each, little-endian
    types: bytes  # 1 byte each


def of_entries(pairs: Sequence[Pair]) -> Columns:
    """Of stored entries. Raises Corrupt."""
    names = b"".join([name + b"\0" for name in keys.names_of([key for key, _ in pairs])])
    values = [value for _, value in pairs]
    if len(values) > _MIN_VECTORIZED and set(map(len, values)) == {_ROW.itemsize}:
        stored = b"".join(values)
        rows = np.frombuffer(stored, _ROW)
        if _usual(rows, stored):
            return Columns(names, rows["inode"].tobytes(), rows["type"].tobytes())
    found = [entry_codec.decode(value, key) for key, value in pairs]
    inodes = pack(f"<{len(found)}Q", *[entry.inode for entry in found])
    return Columns(names, inodes, bytes([entry.type if 0 < entry.type < 128 else 0 for entry in found]))


def numbers(inodes: bytes) -> Sequence[int]:
    """The column of inodes as such."""
    return unpack(f"<{len(inodes) // 8}Q", inodes)


def _usual(rows: "np.ndarray[tuple[int], np.dtype[np.void]]", stored: bytes) -> bool:
    """Whether all have the usual form, and are not damaged."""
    octets = np.frombuffer(stored, np.uint8).reshape(-1, _ROW.itemsize)
    changes = np.bitwise_xor.reduce(_CONTRIBUTIONS[_PLACES + octets[:, _BODY_AT:]], axis=1)
    good = changes ^ np.uint32(_ZEROS) == rows["checksum"]
    good &= rows["format"] == FORMAT
    good &= rows["inode_tag"] == entry_codec.INODE_TAG
    good &= rows["type_tag"] == entry_codec.TYPE_TAG
    good &= rows["type"] < 128
    return bool(good.all())
