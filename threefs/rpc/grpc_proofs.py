"""How a call of the control plane proves that its caller knows the cluster's key, and its answer that the server does.

gRPC has no first message of a connection that both sides could check, so every call carries a proof: an HMAC-SHA256 by
the key over the method, the bytes of the request, a challenge of the server and a nonce of the caller. A caller that
has no challenge yet, or an old one, is refused with the one that holds now, and asks again. The server takes each proof
once; it changes the challenge from time to time and then forgets the nonces. No clocks are compared. The answer carries
a proof over that of the call and the bytes of the reply, so nobody else can have given it.

What is said is not hidden: beyond one machine that takes TLS.
"""

import hashlib
import hmac
from typing import NamedTuple

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import NotAuthorised

CHALLENGE_S = 300.0  # a proof is taken for so long, or twice that
_MAX_NONCES = 1 << 16  # remembered for each of two challenges; with more the challenge changes before its time
_RANDOM_BYTES = 16

_CALL, _REPLY = b"threefs control call", b"threefs control reply"


class Proof(NamedTuple):
    challenge: str
    nonce: str
    body: str  # SHA-256 of the request, which the gate has not seen
    mac: str

    def text(self) -> str:
        return ".".join(self)


def prove(token: str, challenge: str, method: str, body: bytes, random: Random = RANDOM) -> Proof:
    """Of one call of `method` ("/package.Service/Name"); of a streaming one, without what it will send."""
    nonce, digest = random.token(_RANDOM_BYTES).hex(), _digest(body)
    return Proof(challenge, nonce, digest, _mac(token, _CALL, method, challenge, nonce, digest))


def read(text: str) -> Proof | None:
    parts = text.split(".")
    return Proof(*parts) if len(parts) == 4 else None


def fits(proof: Proof, body: bytes) -> bool:
    """Whether a proof that the gate has let pass is of a call with this very request."""
    return hmac.compare_digest(proof.body, _digest(body))


def of_reply(token: str, call: Proof, reply: bytes) -> str:
    return _mac(token, _REPLY, call.mac, _digest(reply))


def is_of_reply(text: str, token: str, call: Proof, reply: bytes) -> bool:
    return hmac.compare_digest(text.encode(), of_reply(token, call, reply).encode())


def of_error(code: int, message: str) -> bytes:
    """What stands for the reply where the answer is an error."""
    return f"error {code} {message}".encode("utf-8", "replace")


class Gate:
    """Of one server with a key."""

    def __init__(self, token: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> None:
        self._token = token
        self._clock = clock
        self._random = random
        self._seen: dict[str, set[str]] = {}  # challenge → nonces; the newest challenge is the last one
        self._changes_at = 0.0

    def challenge(self) -> str:
        """The one that holds now."""
        now = self._clock.monotonic()
        newest = next(reversed(self._seen), "")
        if not newest or now >= self._changes_at or len(self._seen[newest]) >= _MAX_NONCES:
            before = {newest: self._seen[newest]} if newest else {}
            newest = self._random.token(_RANDOM_BYTES).hex()
            self._seen = {**before, newest: set()}
            self._changes_at = now + CHALLENGE_S
        return newest

    def admit(self, method: str, text: str) -> Proof:
        """The proof of a call that may pass. Raises NotAuthorised."""
        self.challenge()
        proof = read(text)
        if proof is None:
            raise NotAuthorised("the cluster has a key, and the caller did not prove that it knows it")
        right = _mac(self._token, _CALL, method, proof.challenge, proof.nonce, proof.body)
        if not hmac.compare_digest(proof.mac.encode(), right.encode()):
            raise NotAuthorised("the caller and the cluster have different keys")
        seen = self._seen.get(proof.challenge)
        if seen is None:
            raise NotAuthorised("the proof of the call is too old")
        if proof.nonce in seen:
            raise NotAuthorised("the call was made before: it is a copy")
        seen.add(proof.nonce)
        return proof


def _mac(token: str, *parts: str | bytes) -> str:
    made = hmac.new(token.encode(), digestmod=hashlib.sha256)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "big"))
        made.update(data)
    return made.hexdigest()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
