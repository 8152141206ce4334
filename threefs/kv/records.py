"""Stored values: a format byte, a CRC32C, a protobuf message. What does not match is Corrupt, never half believed."""

import struct
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from threefs.checksums import crc32c, crc32c_behind
from threefs.errors import Corrupt

M = TypeVar("M", bound=Message)

FORMAT = 1
_PREFIX = struct.Struct("<BI")
_PREFIX_BYTES = _PREFIX.size
_prefix_of = _PREFIX.unpack_from
_prefix = _PREFIX.pack
FORMAT_CRC = crc32c(bytes((FORMAT,)))  # the format byte is covered too


def encode(message: Message) -> bytes:
    body = message.SerializeToString()
    return _prefix(FORMAT, crc32c_behind(FORMAT_CRC, body)) + body


def encode_body(body: bytes) -> bytes:
    """Of a message that is serialized already."""
    return _prefix(FORMAT, crc32c_behind(FORMAT_CRC, body)) + body


def decode(value: bytes, kind: type[M], key: bytes) -> M:
    """Raises Corrupt, which names the key."""
    try:
        return kind.FromString(body(value, key))
    except DecodeError:
        raise _unreadable(key) from None


def body(value: bytes, key: bytes) -> bytes:
    """The serialized message. Raises Corrupt."""
    if len(value) < _PREFIX_BYTES:
        raise Corrupt(f"the record {key!r} is cut off")
    form, checksum = _prefix_of(value)
    found = value[_PREFIX_BYTES:]
    if form == FORMAT and checksum == crc32c_behind(FORMAT_CRC, found):
        return found
    if form != FORMAT:
        raise Corrupt(f"the record {key!r} has format {form}; this version reads format {FORMAT}")
    raise Corrupt(f"the record {key!r} does not match its checksum")


def bodies(values: Iterable[bytes | None], keys: Iterable[bytes]) -> list[bytes | Corrupt | None]:
    """Of many records, or why one cannot be believed; None where none is."""
    found: list[bytes | Corrupt | None] = []
    put = found.append
    # Written out: a call with many names reads thousands.
    for value, key in zip(values, keys, strict=True):
        if value is not None and len(value) >= _PREFIX_BYTES:
            form, checksum = _prefix_of(value)
            content = value[_PREFIX_BYTES:]
            if form == FORMAT and checksum == crc32c_behind(FORMAT_CRC, content):
                put(content)
                continue
        put(value if value is None else _believed(value, key))
    return found


def _believed(value: bytes, key: bytes) -> bytes | Corrupt:
    try:
        return body(value, key)
    except Corrupt as error:
        return error


def parsed(body: bytes, kind: type[M], key: bytes) -> M:
    """Raises Corrupt."""
    try:
        return kind.FromString(body)
    except DecodeError:
        raise _unreadable(key) from None


def _unreadable(key: bytes) -> Corrupt:
    return Corrupt(f"the record {key!r} cannot be read")
