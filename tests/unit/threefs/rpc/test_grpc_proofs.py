import pytest

from tests.harness.clocks import SteppedClock
from threefs.errors import NotAuthorised
from threefs.rpc import grpc_proofs
from threefs.rpc.grpc_proofs import CHALLENGE_S, Gate

KEY, METHOD = "0123456789abcdef" * 4, "/threefs.wire.Manager/Register"


def test_a_proof_passes_once() -> None:
    gate = Gate(KEY)
    proof = grpc_proofs.prove(KEY, gate.challenge(), METHOD, b"body")
    assert grpc_proofs.read(proof.text()) == proof
    assert gate.admit(METHOD, proof.text()) == proof
    assert grpc_proofs.fits(proof, b"body") and not grpc_proofs.fits(proof, b"other")
    with pytest.raises(NotAuthorised, match="copy"):
        gate.admit(METHOD, proof.text())


def test_what_does_not_pass() -> None:
    gate = Gate(KEY)
    good = grpc_proofs.prove(KEY, gate.challenge(), METHOD, b"").text()
    for text in ("", "a.b", "é.é.é.é", good[:-1] + ("0" if good[-1] != "0" else "1"), good.replace(".", "..", 1)):
        with pytest.raises(NotAuthorised):
            gate.admit(METHOD, text)
    with pytest.raises(NotAuthorised, match="different keys"):
        gate.admit("/threefs.wire.Manager/Heartbeat", good)
    with pytest.raises(NotAuthorised, match="different keys"):
        gate.admit(METHOD, grpc_proofs.prove("other", gate.challenge(), METHOD, b"").text())
    with pytest.raises(NotAuthorised, match="too old"):
        gate.admit(METHOD, grpc_proofs.prove(KEY, "00", METHOD, b"").text())
    gate.admit(METHOD, good)


def test_challenges_change_and_the_one_before_still_holds() -> None:
    clock = SteppedClock()
    gate = Gate(KEY, clock=clock)
    first = gate.challenge()
    early, late = (grpc_proofs.prove(KEY, first, METHOD, b"").text() for _ in range(2))
    clock.advance(CHALLENGE_S)
    assert gate.challenge() != first
    gate.admit(METHOD, early)
    with pytest.raises(NotAuthorised, match="copy"):
        gate.admit(METHOD, early)
    clock.advance(CHALLENGE_S)
    with pytest.raises(NotAuthorised, match="too old"):
        gate.admit(METHOD, late)


def test_an_answer_is_that_of_one_call() -> None:
    one, other = (grpc_proofs.prove(KEY, "c", METHOD, b"") for _ in range(2))
    said = grpc_proofs.of_reply(KEY, one, b"reply")
    assert grpc_proofs.is_of_reply(said, KEY, one, b"reply")
    assert not grpc_proofs.is_of_reply(said, KEY, one, b"other")
    assert not grpc_proofs.is_of_reply(said, KEY, other, b"reply")
    assert not grpc_proofs.is_of_reply("", KEY, one, b"reply")
    assert grpc_proofs.of_error(1, "a") != grpc_proofs.of_error(2, "a") != grpc_proofs.of_error(2, "b")
