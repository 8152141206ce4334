"""HELLO: how two processes find out that they belong together. Decisions only; the caller moves the bytes.

Without a key each side says who it is, and believes the other.

With a key (a secret text that all programs of a cluster share, never sent):

    client  HELLO  nonce
    server  HELLO  nonce, cluster, program, proof
    client  HELLO  cluster, client, program, proof      and calls at once behind it

A proof is an HMAC-SHA256 by the key over all bytes of the exchange up to itself, so over both nonces and over whatever
a HELLO may say one day, and over the server's end of the connection as each side sees it: a process that only passes
bytes on between the two, from another port, makes both proofs wrong. Proofs of the two sides begin with different
words, so none can be sent back as one's own. The client says nothing about itself before the server has proven that it
knows the key, and neither side takes part in a handshake without one if it has a key itself.
"""

import hashlib
import hmac

from google.protobuf.message import DecodeError

from threefs.env.random import RANDOM, Random
from threefs.errors import NotAuthorised, ProtocolError, WrongVersion
from threefs.rpc import frames
from threefs.rpc.identity import Identity, check_cluster
from threefs.rpc.limits import Limits
from threefs.wire.common_pb2 import Hello

NONCE_BYTES = 32
_DEFAULT_LIMITS = Limits()
_PROOF_BYTES = 32
#: How a proof looks on the wire: tag and length of the field, which is always the last one.
_PROOF_HEAD = Hello(proof=bytes(_PROOF_BYTES)).SerializeToString()[:-_PROOF_BYTES]
_TAIL_BYTES = len(_PROOF_HEAD) + _PROOF_BYTES

_SERVER, _CLIENT = b"threefs server", b"threefs client"

NEEDS_KEY = (
    "the cluster has a key, and this program was not given it: name the file by key_file, --key-file or "
    "$THREEFS_KEY_FILE; the user who started the cluster can let others in (docs/security.md)"
)
_WRONG_KEY = "this program has another key than {}, or something between the two passes their messages on"
_NO_KEY = (
    "this program was given a key, but {} has none and could be anybody: give the services the key too, or take it "
    "from this program ($THREEFS_TOKEN, $THREEFS_KEY_FILE)"
)


def hello(identity: Identity, limits: Limits = _DEFAULT_LIMITS) -> Hello:
    """All that one side says about itself, and what it takes on this connection."""
    return Hello(
        protocol=frames.PROTOCOL,
        cluster_id=identity.cluster_id,
        client_id=identity.client_id,
        program=identity.program,
        most_calls=limits.calls,
        most_inflight_bytes=limits.inflight_bytes,
        most_payload_bytes=limits.payload_bytes,
        most_body_bytes=limits.body_bytes,
    )


def read(body: bytes) -> Hello:
    """Raises ProtocolError, WrongVersion."""
    try:
        found = Hello.FromString(body)
    except DecodeError:
        raise ProtocolError("HELLO cannot be read") from None
    if found.protocol != frames.PROTOCOL:
        raise WrongVersion(f"the peer speaks protocol version {found.protocol}, this side {frames.PROTOCOL}")
    return found


def frame(body: bytes) -> bytes:
    return frames.encode(frames.HELLO, body=body)


class ClientHandshake:
    """`service` is the server's end of the connection (`Stream.service`); `address`, how people call it."""

    def __init__(
        self,
        identity: Identity,
        service: str,
        address: str,
        *,
        limits: Limits = _DEFAULT_LIMITS,
        random: Random = RANDOM,
    ) -> None:
        self._identity = identity
        self._limits = limits
        self._address = address
        self._service = service
        if identity.token:
            self._sent = Hello(protocol=frames.PROTOCOL, nonce=random.token(NONCE_BYTES)).SerializeToString()
        else:
            self._sent = hello(identity, limits).SerializeToString()

    def begin(self) -> bytes:
        """The first message."""
        return self._sent

    def answer(self, body: bytes) -> tuple[Hello, bytes]:
        """(what the server said of itself, the message to send it, if any). Raises what is wrong with it."""
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
        mine = hello(self._identity, self._limits).SerializeToString()
        return theirs, _proven(mine, token, _CLIENT, self._service, self._sent, body)


class ServerHandshake:
    """Of one connection."""

    def __init__(self, service: str, *, limits: Limits = _DEFAULT_LIMITS, random: Random = RANDOM) -> None:
        self._service = service
        self._limits = limits
        self._random = random
        self._received = b""
        self._sent = b""

    def take(self, body: bytes, identity: Identity) -> tuple[Hello | None, bytes]:
        """(who the client is, once that is certain; the message to send it, if any). Raises what is wrong with it."""
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
    """The message with a proof behind it."""
    return message + _PROOF_HEAD + _proof(token, side, service.encode(), *before, message)


def _is_proven(message: bytes, token: str, side: bytes, service: str, *before: bytes) -> bool:
    said, tail = message[:-_TAIL_BYTES], message[-_TAIL_BYTES:]
    right = _PROOF_HEAD + _proof(token, side, service.encode(), *before, said)
    return hmac.compare_digest(tail, right)


def _proof(token: str, *parts: bytes) -> bytes:
    """Each part with its length, so that nothing can be moved from one to the next."""
    made = hmac.new(token.encode(), digestmod=hashlib.sha256)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()
