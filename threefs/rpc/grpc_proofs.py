"""Proofs of calls over gRPC: a call proves that its caller knows the cluster's key, and its answer that the server
does.

A gRPC connection has no handshake that both sides could check, so every call carries a proof. It is an HMAC-SHA256 by
the key, over the method, the bytes of the request, a challenge of the server and a nonce of the caller. A caller
without a challenge, or with an old one, is refused with the present challenge, and repeats the call. The server accepts
each proof once. It changes the challenge from time to time, and forgets the nonces of older challenges. No clocks are
compared. The answer carries a proof over the proof of the call and the bytes of the reply, so only a process with the
key can have made it.

Requests and replies are not encrypted. Between machines, encryption needs TLS.
"""

import hashlib
import hmac
from typing import NamedTuple

from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import NotAuthorised

CHALLENGE_S = 300.0  # a proof is accepted for at least this long, and for at most twice as long
_MAX_NONCES = 1 << 16  # for each of two challenges; after as many calls the challenge changes early
_RANDOM_BYTES = 16

_CALL, _REPLY = b"threefs control call", b"threefs control reply"


class Proof(NamedTuple):
    """The proof of one call."""

    challenge: str
    nonce: str
    body: str  # SHA-256 of the request; the gate has only this
    mac: str

    def text(self) -> str:
        return ".".join(self)


def prove(token: str, challenge: str, method: str, body: bytes, random: Random = RANDOM) -> Proof:
    """The proof of a call of `method` ("/package.Service/Name"). The proof of a streaming call does not cover what the
    call sends."""
    nonce, digest = random.token(_RANDOM_BYTES).hex(), _digest(body)
    return Proof(challenge, nonce, digest, _mac(token, _CALL, method, challenge, nonce, digest))


def read(text: str) -> Proof | None:
    """The proof in a text; None if the text is no proof."""
    parts = text.split(".")
    return Proof(*parts) if len(parts) == 4 else None


def fits(proof: Proof, body: bytes) -> bool:
    """Whether a proof that the gate has admitted belongs to a call with this request."""
    return hmac.compare_digest(proof.body, _digest(body))


def of_reply(token: str, call: Proof, reply: bytes) -> str:
    """The proof of an answer."""
    return _mac(token, _REPLY, call.mac, _digest(reply))


def is_of_reply(text: str, token: str, call: Proof, reply: bytes) -> bool:
    """Whether the text is the proof of that answer."""
    return hmac.compare_digest(text.encode(), of_reply(token, call, reply).encode())


def of_error(code: int, message: str) -> bytes:
    """The bytes that are proven in place of a reply when the answer is an error."""
    return f"error {code} {message}".encode("utf-8", "replace")


class Gate:
    """Admits calls at one server of a cluster with a key."""

    def __init__(self, token: str, *, clock: Clock = CLOCK, random: Random = RANDOM) -> None:
        self._token = token
        self._clock = clock
        self._random = random
        self._seen: dict[str, set[str]] = {}  # challenge -> nonces; the last challenge is the newest
        self._changes_at = 0.0

    def challenge(self) -> str:
        """The present challenge."""
        now = self._clock.monotonic()
        newest = next(reversed(self._seen), "")
        if not newest or now >= self._changes_at or len(self._seen[newest]) >= _MAX_NONCES:
            before = {newest: self._seen[newest]} if newest else {}
            newest = self._random.token(_RANDOM_BYTES).hex()
            self._seen = {**before, newest: set()}
            self._changes_at = now + CHALLENGE_S
        return newest

    def admit(self, method: str, text: str) -> Proof:
        """Check the proof of a call, and return it. Raises NotAuthorised."""
        self.challenge()
        proof = read(text)
        if proof is None:
            raise NotAuthorised("the cluster has a key, and the call has no proof of it")
        right = _mac(self._token, _CALL, method, proof.challenge, proof.nonce, proof.body)
        if not hmac.compare_digest(proof.mac.encode(), right.encode()):
            raise NotAuthorised("the caller and the cluster have different keys")
        seen = self._seen.get(proof.challenge)
        if seen is None:
            raise NotAuthorised("the proof of the call is too old")
        if proof.nonce in seen:
            raise NotAuthorised("the proof of the call was used before: the call is a copy")
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
