"""Stored values: a format byte, a CRC32C, a protobuf message. What does not match is Corrupt, never half believed."""

import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from threefs.checksums import crc32c, crc32c_behind
from threefs.errors import Corrupt

M = TypeVar("M", bound=Message)

FORMAT = 1
_PREFIX = struct.Struct("<BI")
_PREFIX_BYTES = _PREFIX.size
_FORMAT_CRC = crc32c(bytes((FORMAT,)))  # the format byte is covered too


def encode(message: Message) -> bytes:
    body = message.SerializeToString()
    return _PREFIX.pack(FORMAT, crc32c_behind(_FORMAT_CRC, body)) + body


def decode(value: bytes, kind: type[M], key: bytes) -> M:
    """Raises Corrupt, which names the key."""
    if len(value) < _PREFIX_BYTES:
        raise Corrupt(f"the record {key!r} is cut off")
    form, checksum = _PREFIX.unpack_from(value)
    body = value[_PREFIX_BYTES:]
    if form != FORMAT:
        raise Corrupt(f"the record {key!r} has format {form}; this version reads format {FORMAT}")
    if checksum != crc32c_behind(_FORMAT_CRC, body):
        raise Corrupt(f"the record {key!r} does not match its checksum")
    try:
        return kind.FromString(body)
    except DecodeError:
        raise Corrupt(f"the record {key!r} cannot be read") from None
