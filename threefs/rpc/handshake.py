"""HELLO: the handshake in which two processes exchange their identities and prove that they belong to one cluster.

This module decides; the connection moves the bytes. In a cluster without a key, each side believes what the other says
about itself. In a cluster with a key (a secret text that all its programs share, and that is never sent), each side
proves that it knows the key:

    client  HELLO  nonce; program, if it is a service
    server  HELLO  nonce, cluster, program, proof
    client  HELLO  cluster, client, program, proof      and the first calls behind it

A proof is an HMAC-SHA256 by the key. It covers all bytes of the exchange before it, with both nonces and all fields
that a HELLO may have one day, and the address of the server's end of the connection as each side sees it. So a process
between the two that passes their bytes on from another port makes both proofs wrong. The proofs of client and server
begin with different words, so a proof cannot be sent back to its sender as one's own. The client says nothing about
itself, but that it is a service, before the server has proven that it knows the key. A side that has a key takes part
in no handshake without one.
"""

import hashlib
import hmac
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from threefs.env.random import RANDOM, Random
from threefs.errors import NotAuthorised, ProtocolError, WrongCluster, WrongVersion
from threefs.rpc import frames
from threefs.rpc.limits import Limits
from threefs.rpc.traffic_class import TrafficClass
from threefs.wire.common_pb2 import Hello

NONCE_BYTES = 32
#: Features, one bit each in HELLO: calls that a peer of the same protocol version may not know yet.
STAGE_AHEAD_FEATURE = 1  # StageAhead and ForwardStaged
SHARED_FORWARDS_FEATURE = 2  # ForwardVersions, and StageAhead of several changes
WRITE_PIECES_FEATURE = 4  # changes of kind WRITE_PIECES
FEATURES = STAGE_AHEAD_FEATURE | SHARED_FORWARDS_FEATURE | WRITE_PIECES_FEATURE
#: Programs whose connections have a reserve.
SERVICES = ("threefs-manager", "threefs-meta", "threefs-storage")
_DEFAULT_LIMITS = Limits()
_PROOF_BYTES = 32
#: How a proof looks on the wire: tag and length of the field, which is always the last one.
_PROOF_HEAD = Hello(proof=bytes(_PROOF_BYTES)).SerializeToString()[:-_PROOF_BYTES]
_TAIL_BYTES = len(_PROOF_HEAD) + _PROOF_BYTES

#: The words with which the proofs of the two sides begin.
_SERVER, _CLIENT = b"threefs server", b"threefs client"

NEEDS_KEY = (
    "the cluster has a key, and this program was not given it: name the file by key_file, --key-file or "
    "$THREEFS_KEY_FILE; the user who started the cluster can let others in (docs/security.md)"
)
_WRONG_KEY = "this program and {} have different keys, or a process between the two passes their messages on"
_NO_KEY = (
    "this program was given a key, but {} has none, so its identity cannot be proven: give the services the key too, "
    "or take it from this program ($THREEFS_TOKEN, $THREEFS_KEY_FILE)"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a process.

    `cluster_id` is empty in a process that has not learned its cluster yet. `client_id` is 32 hex digits, new in every
    process. `token` is the text of the cluster's key; empty: the cluster has none.
    """

    cluster_id: str
    client_id: str
    token: str = field(default="", repr=False)
    program: str = ""


def check_cluster(own: str, theirs: str) -> None:
    """Raises WrongCluster if the ids differ. The id of a side that does not know its cluster yet is empty."""
    if own and theirs and own != theirs:
        raise WrongCluster(f"the peer belongs to cluster {theirs}, this side to cluster {own}")


def hello(identity: Identity, limits: Limits = _DEFAULT_LIMITS, traffic: TrafficClass = TrafficClass.DATA) -> Hello:
    """The HELLO of one side, with its identity and its limits for this connection. `traffic` is said by the caller."""
    return Hello(
        protocol=frames.PROTOCOL,
        cluster_id=identity.cluster_id,
        client_id=identity.client_id,
        program=identity.program,
        traffic_class=traffic,
        max_calls=limits.calls,
        max_inflight_bytes=limits.inflight_bytes,
        max_payload_bytes=limits.payload_bytes,
        max_body_bytes=limits.body_bytes,
        features=FEATURES,
    )


def read(body: bytes) -> Hello:
    """The HELLO in the body of a frame. Raises ProtocolError, WrongVersion."""
    try:
        found = Hello.FromString(body)
    except DecodeError:
        raise ProtocolError("HELLO cannot be read") from None
    if found.protocol != frames.PROTOCOL:
        raise WrongVersion(f"the peer speaks protocol version {found.protocol}, this side {frames.PROTOCOL}")
    return found


def frame(body: bytes) -> bytes:
    """The frame of a HELLO."""
    return frames.encode(frames.HELLO, body=body)


class ClientHandshake:
    """The client's side of one handshake. It begins, and answers each HELLO of the server."""

    def __init__(
        self,
        identity: Identity,
        service: str,
        address: str,
        *,
        limits: Limits = _DEFAULT_LIMITS,
        random: Random = RANDOM,
        traffic: TrafficClass = TrafficClass.DATA,
    ) -> None:
        """`service` is the server's end of the connection (`Stream.service`). `address` is the server's name in
        errors."""
        self._identity = identity
        self._limits = limits
        self._traffic = traffic
        self._address = address
        self._service = service
        if identity.token:
            # A service says what it is at once: at a bound of connections it is not refused as others are.
            program = identity.program if identity.program in SERVICES else ""
            nonce = random.token(NONCE_BYTES)
            self._sent = Hello(protocol=frames.PROTOCOL, program=program, nonce=nonce).SerializeToString()
        else:
            self._sent = hello(identity, limits, traffic).SerializeToString()

    def begin(self) -> bytes:
        """The first HELLO."""
        return self._sent

    def answer(self, body: bytes) -> tuple[Hello, bytes]:
        """The server's HELLO, and the HELLO to answer with; that is empty if none is due.

        Raises ProtocolError, WrongVersion, NotAuthorised, WrongCluster.
        """
        theirs = read(body)
        token = self._identity.token
        if not token:
            if theirs.nonce:
                raise NotAuthorised(NEEDS_KEY)
            check_cluster(self._identity.cluster_id, theirs.cluster_id)
            return theirs, b""
        if len(theirs.nonce) != NONCE_BYTES:
            raise NotAuthorised(_NO_KEY.format(self._address))
        if not _is_proven(body, token, _SERVER, self._service, self._sent):
            raise NotAuthorised(_WRONG_KEY.format(self._address))
        check_cluster(self._identity.cluster_id, theirs.cluster_id)
        mine = hello(self._identity, self._limits, self._traffic).SerializeToString()
        return theirs, _proven(mine, token, _CLIENT, self._service, self._sent, body)


def is_of_service(body: bytes) -> bool:
    """Whether a HELLO is one of a service, by its own word. Raises ProtocolError, WrongVersion."""
    return read(body).program in SERVICES


class ServerHandshake:
    """The server's side of one handshake."""

    def __init__(self, service: str, *, limits: Limits = _DEFAULT_LIMITS, random: Random = RANDOM) -> None:
        self._service = service
        self._limits = limits
        self._random = random
        self._received = b""
        self._sent = b""

    def take(self, body: bytes, identity: Identity) -> tuple[Hello | None, bytes]:
        """Take a HELLO of the client. Returns it once the client's identity is certain, before that None, and the HELLO
        to answer with; that is empty if none is due.

        Raises ProtocolError, WrongVersion, NotAuthorised, WrongCluster.
        """
        theirs = read(body)
        if not identity.token:
            if theirs.nonce:
                raise NotAuthorised(_NO_KEY.format("the service"))
            check_cluster(identity.cluster_id, theirs.cluster_id)
            return theirs, hello(identity, self._limits).SerializeToString()
        if not self._sent:
            return None, self._challenge(theirs, body, identity)
        if not _is_proven(body, identity.token, _CLIENT, self._service, self._received, self._sent):
            raise NotAuthorised(_WRONG_KEY.format("the cluster"))
        check_cluster(identity.cluster_id, theirs.cluster_id)
        return theirs, b""

    def _challenge(self, theirs: Hello, body: bytes, identity: Identity) -> bytes:
        if len(theirs.nonce) != NONCE_BYTES:
            raise NotAuthorised(NEEDS_KEY)
        mine = hello(identity, self._limits)
        mine.nonce = self._random.token(NONCE_BYTES)
        self._received = body
        self._sent = _proven(mine.SerializeToString(), identity.token, _SERVER, self._service, body)
        return self._sent


def _proven(message: bytes, token: str, side: bytes, service: str, *before: bytes) -> bytes:
    """The message followed by its proof."""
    return message + _PROOF_HEAD + _proof(token, side, service.encode(), *before, message)


def _is_proven(message: bytes, token: str, side: bytes, service: str, *before: bytes) -> bool:
    said, tail = message[:-_TAIL_BYTES], message[-_TAIL_BYTES:]
    right = _PROOF_HEAD + _proof(token, side, service.encode(), *before, said)
    return hmac.compare_digest(tail, right)


def _proof(token: str, *parts: bytes) -> bytes:
    """The HMAC of the parts. Each part is preceded by its length, so no byte can be moved from one part to the next."""
    made = hmac.new(token.encode(), digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
