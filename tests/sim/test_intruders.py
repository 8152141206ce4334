"""Whoever does not know the key gets no answer, and hears nothing (I21)."""

import pytest

from tests.sim.faults import parse
from tests.sim.run import Outcome, run
from tests.sim.workload import Load
from tests.sim.world import Size
from threefs.rpc import handshake

_STEPS = """
1.0 intruder s1 2.0
1.0 intruder m1 2.0
1.0 intruder t1 2.0
1.5 impostor s2 2.0
4.0 impostor t1 1.0
5.5 impostor m1 1.0
6.0 impostor m2 1.0
"""


def played(seed: int = 1, key: str = "the key") -> Outcome:
    load = Load(chunks=2, pause_s=0.2, files_pause_s=0.2)
    return run(seed, size=Size(key=key), load=load, scenario=parse(_STEPS + "8.0 cut s1 c1"))


def test_no_peer_is_let_in_without_the_key_or_trusted() -> None:
    outcome = played()
    assert not outcome.violations, outcome.violations
    assert outcome.faults == {"intruder": 3, "impostor": 4, "cut": 1}
    assert outcome.refused > 5


def test_where_there_is_no_key_there_is_nothing_to_break() -> None:
    assert played(key="").faults == {"cut": 1}


def test_proofs_that_are_never_checked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "_is_proven", lambda *anything: True)
    violations = played().violations
    assert any("has answered" in one and "with_another_key" in one for one in violations)
    assert any("was sent to an impostor" in one for one in violations)
