"""Stored values: a format byte, a CRC32C, a protobuf message. A value that does not match its checksum is Corrupt."""

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
FORMAT_CRC = crc32c(bytes((FORMAT,)))  # the checksum covers the format byte


def encode(message: Message) -> bytes:
    body = message.SerializeToString()
    return _prefix(FORMAT, crc32c_behind(FORMAT_CRC, body)) + body


def encode_body(body: bytes) -> bytes:
    """The value for a message that is serialized already."""
    return _prefix(FORMAT, crc32c_behind(FORMAT_CRC, body)) + body


def decode(value: bytes, kind: type[M], key: bytes) -> M:
    """The message in a value. Raises Corrupt, which names the key."""
    try:
        return kind.FromString(body(value, key))
    except DecodeError:
        raise _unreadable(key) from None


def body(value: bytes, key: bytes) -> bytes:
    """The serialized message in a value. Raises Corrupt, which names the key."""
    if len(value) < _PREFIX_BYTES:
        raise Corrupt(f"the record {key!r} has {len(value)} bytes, less than its header")
    form, checksum = _prefix_of(value)
    found = value[_PREFIX_BYTES:]
    if form == FORMAT and checksum == crc32c_behind(FORMAT_CRC, found):
        return found
    if form != FORMAT:
        raise Corrupt(f"the record {key!r} has format {form}; this version of threefs reads format {FORMAT}")
    raise Corrupt(f"the record {key!r} does not match its checksum")


def bodies(values: Iterable[bytes | None], keys: Iterable[bytes]) -> list[bytes | Corrupt | None]:
    """The serialized message in each value, or the error of a value that is damaged; None for a value that is None."""
    found: list[bytes | Corrupt | None] = []
    put = found.append
    # `body` is inlined, because a call with many names reads thousands of records.
    for value, key in zip(values, keys, strict=True):
        if value is not None and len(value) >= _PREFIX_BYTES:
            form, checksum = _prefix_of(value)
            content = value[_PREFIX_BYTES:]
            if form == FORMAT and checksum == crc32c_behind(FORMAT_CRC, content):
                put(content)
                continue
        put(value if value is None else _body_or_error(value, key))
    return found


def _body_or_error(value: bytes, key: bytes) -> bytes | Corrupt:
    try:
        return body(value, key)
    except Corrupt as error:
        return error


def parsed(body: bytes, kind: type[M], key: bytes) -> M:
    """The message of a body. Raises Corrupt, which names the key."""
    try:
        return kind.FromString(body)
    except DecodeError:
        raise _unreadable(key) from None


def _unreadable(key: bytes) -> Corrupt:
    return Corrupt(f"the record {key!r} has a right checksum, but its message cannot be parsed")
