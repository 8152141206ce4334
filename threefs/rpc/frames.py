"""The frame: a fixed header, a protobuf body, raw payload. No I/O.

A call is a REQUEST and its RESPONSE. The payload of either may be longer than one frame: the header has the total, the
first SEGMENT_BYTES follow inline, and the rest comes in SEGMENT frames with the same call id. Other frames may come
between them.

Request-to-send: a caller that has no room for a large answer marks its REQUEST (WAITS_FOR_GRANT). The service makes the
answer, announces it with a READY, and sends it after the GRANT of the caller. Answers of up to UNGRANTED_BYTES and
errors are sent at once.

A CRC32C covers header and body, because the checksums of TCP are too weak for the names of chunks, offsets and
versions. The checksums of the payload are in the body.
"""

import enum
import struct
from typing import NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from threefs.errors import ConnectionLost, LimitExceeded, ProtocolError, ThreefsError, WrongVersion, error_of
from threefs.rpc.limits import Limits
from threefs.wire import common_pb2

MAGIC = 0x3F5F
PROTOCOL = 2
SEGMENT_BYTES = 256 << 10
#: An answer with so little payload needs no grant: it fits into the first window of a TCP connection.
UNGRANTED_BYTES = 16 << 10

#: In the body of a PING and its PONG that try the way: more than a packet of a network holds (jumbo frames, too), less
#: than the first window of a TCP connection.
PROBE_BYTES = 12 << 10

_START = struct.Struct("<HBI")  # magic, version, and the CRC32C of all that follows up to the end of the body
_REST = struct.Struct("<BHHIIIIQ")
_HEADER = struct.Struct(_START.format + _REST.format.lstrip("<"))
_START_BYTES, _REST_BYTES = _START.size, _REST.size
HEADER_BYTES = _HEADER.size
_pack_start, _pack_rest, _unpack_from = _START.pack, _REST.pack, _HEADER.unpack_from
_value, _extend = google_crc32c.value, google_crc32c.extend


class Kind(enum.IntEnum):
    """Kinds of frames."""

    HELLO = 1
    REQUEST = 2
    RESPONSE = 3
    SEGMENT = 4
    CANCEL = 5
    READY = 6  # from a service: the answer of this call waits for a GRANT
    GRANT = 7
    GOAWAY = 8
    PING = 9  # from a client, to tell a service that works from one that hangs
    PONG = 10


HELLO, REQUEST, RESPONSE, SEGMENT, CANCEL, READY, GRANT, GOAWAY, PING, PONG = (int(kind) for kind in Kind)
_KINDS = frozenset(int(kind) for kind in Kind)
_WITH_PAYLOAD = frozenset((REQUEST, RESPONSE, SEGMENT))

#: Flag of a RESPONSE whose body is an Error.
FAILED = 1
#: Flag of a REQUEST that forwards work of another process. The next two bits hold the number of hops that follow, at
#: most 3.
FORWARDED = 2
_HOPS_BIT, _MAX_HOPS = 2, 3
#: Flag of a REQUEST whose answer must not be sent before a GRANT.
WAITS_FOR_GRANT = 16


class Header(NamedTuple):
    """The fields of a header."""

    checksum: int
    kind: int
    method: int
    flags: int
    call_id: int
    body_bytes: int
    payload_bytes: int  # of the whole call; in a SEGMENT of this frame
    deadline_ms: int  # of a REQUEST: its remaining time when it is sent
    request_id: int

    @property
    def inline_bytes(self) -> int:
        """The length of the payload in this frame."""
        return min(self.payload_bytes, SEGMENT_BYTES)


def forward_flags(hops: int | None) -> int:
    """The flags of a REQUEST that will pass as many more processes (None: it forwards no work of another process)."""
    return 0 if hops is None else FORWARDED | min(hops, _MAX_HOPS) << _HOPS_BIT


def hops(header: Header) -> int | None:
    """The number of hops in the flags of a REQUEST; None if it does not forward work."""
    return header.flags >> _HOPS_BIT & _MAX_HOPS if header.flags & FORWARDED else None


_made = tuple.__new__  # three times as fast as the constructor of a named tuple


def encode(
    kind: int,
    method: int = 0,
    flags: int = 0,
    call_id: int = 0,
    body: bytes = b"",
    payload_bytes: int = 0,
    deadline_ms: int = 0,
    request_id: int = 0,
) -> bytes:
    """Header and body, which the payload follows."""
    rest = _pack_rest(kind, method, flags, call_id, len(body), payload_bytes, deadline_ms, request_id) + body
    return _pack_start(MAGIC, PROTOCOL, _value(rest)) + rest


def decode(buffer: memoryview | bytes | bytearray, offset: int, limits: Limits) -> Header:
    """The header at `offset`. It may be damaged: only `body_at` checks the checksum. Raises ProtocolError,
    WrongVersion, LimitExceeded."""
    fields = _unpack_from(buffer, offset)
    magic, protocol, _, kind, _, _, _, body_bytes, payload_bytes, _, _ = fields
    if magic != MAGIC:
        raise ProtocolError(f"not a threefs frame: it begins with {magic:#06x} instead of {MAGIC:#06x}")
    if protocol != PROTOCOL:
        raise WrongVersion(f"the frame has protocol version {protocol}, this side {PROTOCOL}")
    if kind not in _KINDS:
        raise ProtocolError(f"unknown kind of frame {kind}")
    if body_bytes > limits.body_bytes:
        raise LimitExceeded(f"a body of {body_bytes} bytes exceeds the limit of {limits.body_bytes}")
    if payload_bytes:
        if payload_bytes > limits.payload_bytes:
            raise LimitExceeded(f"a payload of {payload_bytes} bytes exceeds the limit of {limits.payload_bytes}")
        if kind not in _WITH_PAYLOAD:
            raise ProtocolError(f"a {Kind(kind).name} frame must not have payload")
    if kind == SEGMENT and (body_bytes or payload_bytes > SEGMENT_BYTES):
        raise ProtocolError("a SEGMENT frame has a body or is too long")
    return _made(Header, fields[2:])


def body_at(buffer: memoryview | bytes | bytearray, offset: int, header: Header) -> bytes:
    """The body of the frame at `offset`, which is complete. Raises ConnectionLost: the frame is damaged."""
    rest = bytes(buffer[offset + _START_BYTES : offset + HEADER_BYTES + header.body_bytes])
    if _value(rest) != header.checksum:
        raise _damaged()
    return rest[_REST_BYTES:]


def header_checksum(buffer: memoryview | bytes | bytearray, offset: int) -> int:
    """The checksum of the header at `offset`, for `check_body`."""
    checksum: int = _value(bytes(buffer[offset + _START_BYTES : offset + HEADER_BYTES]))
    return checksum


def check_body(header: Header, header_checksum: int, body: bytes) -> None:
    """Check a body that was received apart from its header. Raises ConnectionLost: the frame is damaged."""
    if _extend(header_checksum, body) != header.checksum:
        raise _damaged()


def _damaged() -> ConnectionLost:
    return ConnectionLost("a frame was damaged on its way: its checksum is wrong, so the connection is closed")


_MAX_MESSAGE_CHARS = 4096


def error_body(error: ThreefsError) -> bytes:
    """The body of a RESPONSE with an error."""
    return common_pb2.Error(code=error.code, message=error.message[:_MAX_MESSAGE_CHARS]).SerializeToString()


def error_from(body: bytes) -> ThreefsError:
    """The error that a peer has sent; a ProtocolError if the body is no error."""
    try:
        message = common_pb2.Error.FromString(body)
    except DecodeError:
        return ProtocolError("the peer sent an error that cannot be parsed")
    return error_of(message.code, message.message)
