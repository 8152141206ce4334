"""Stored values: a format byte, a CRC32C, a protobuf message. What does not match is Corrupt, never half believed."""

import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from threefs.checksums import crc32c
from threefs.errors import Corrupt

M = TypeVar("M", bound=Message)

FORMAT = 1
_PREFIX = struct.Struct("<BI")


def encode(message: Message) -> bytes:
    body = message.SerializeToString()
    return _PREFIX.pack(FORMAT, _checksum(body)) + body


def decode(value: bytes, kind: type[M], key: bytes) -> M:
    """Raises Corrupt, which names the key."""
    if len(value) < _PREFIX.size:
        raise Corrupt(f"the record {key!r} is cut off")
    form, checksum = _PREFIX.unpack_from(value)
    body = value[_PREFIX.size :]
    if form != FORMAT:
        raise Corrupt(f"the record {key!r} has format {form}; this version reads format {FORMAT}")
    if checksum != _checksum(body):
        raise Corrupt(f"the record {key!r} does not match its checksum")
    try:
        return kind.FromString(body)
    except DecodeError:
        raise Corrupt(f"the record {key!r} cannot be read") from None


def _checksum(body: bytes) -> int:
    return crc32c(bytes((FORMAT,)) + body)  # the format byte is covered too
