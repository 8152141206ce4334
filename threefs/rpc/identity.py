"""Who speaks: exchanged as HELLO before anything else, and checked by both sides."""

import hmac
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from threefs.errors import NotAuthorised, ProtocolError, WrongCluster, WrongVersion
from threefs.rpc import frames
from threefs.rpc.limits import Limits
from threefs.wire.common_pb2 import Hello

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Identity:
    """`cluster_id` may be empty in a client that has not learned it; `client_id` is 32 hex digits, one per process."""

    cluster_id: str
    client_id: str
    token: str = field(default="", repr=False)
    program: str = ""


def hello_frame(identity: Identity, limits: Limits = _DEFAULT_LIMITS, *, with_token: bool) -> bytes:
    """The server proves nothing by the token, so it never sends it."""
    body = Hello(
        protocol=frames.PROTOCOL,
        cluster_id=identity.cluster_id,
        client_id=identity.client_id,
        token=identity.token if with_token else "",
        program=identity.program,
        most_calls=limits.calls,
        most_inflight_bytes=limits.inflight_bytes,
        most_payload_bytes=limits.payload_bytes,
        most_body_bytes=limits.body_bytes,
    ).SerializeToString()
    return frames.encode(frames.HELLO, body=body)


def read_hello(body: bytes) -> Hello:
    try:
        hello = Hello.FromString(body)
    except DecodeError:
        raise ProtocolError("HELLO cannot be read") from None
    if hello.protocol != frames.PROTOCOL:
        raise WrongVersion(f"the peer speaks protocol version {hello.protocol}, this side {frames.PROTOCOL}")
    return hello


def check_cluster(own: str, theirs: str) -> None:
    """An empty id is of a peer that does not know it yet."""
    if own and theirs and own != theirs:
        raise WrongCluster(f"the peer belongs to cluster {theirs}, this side to cluster {own}")


def check_token(own: str, theirs: str) -> None:
    if own and not hmac.compare_digest(own.encode(), theirs.encode()):
        raise NotAuthorised("the token is missing or wrong")
