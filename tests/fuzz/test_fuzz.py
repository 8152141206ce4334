"""A short pass over every decoder and port; `make fuzz` is the long one."""

import subprocess
import sys

import pytest

from tests.fuzz.campaign import PORTS, fuzz
from tests.fuzz.decoders import DECODERS
from tests.harness.processes import ROOT, environment


@pytest.mark.parametrize("name", DECODERS)
def test_no_decoder_crashes(name: str) -> None:
    result = fuzz(name, 1, 0.3, least=11)
    assert not result["finding"] and result["inputs"] > 10, result


def test_it_goes_on_until_some_inputs_were_tried() -> None:
    assert fuzz("frame", 1, 0.0, least=11)["inputs"] == 11


def test_a_hostile_server_does_the_client_no_harm() -> None:
    result = fuzz("client", 1, 1.0, least=11)
    assert not result["finding"] and result["inputs"] > 10, result


@pytest.mark.parametrize("name", PORTS)
def test_hostile_clients_do_no_port_harm(name: str) -> None:
    result = fuzz(name, 1, 1.5, least=4)
    assert not result["finding"] and result["inputs"] > 3, result


def test_a_decoder_that_crashes_is_found() -> None:
    from tests.fuzz.decoders import Decoder

    def crash(data: bytes) -> None:
        raise ZeroDivisionError

    DECODERS["crash"] = Decoder(crash, [b"x"])
    try:
        with pytest.raises(ZeroDivisionError):
            DECODERS["crash"].try_one(b"")
    finally:
        del DECODERS["crash"]


def test_the_command_itself_runs() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "0.1", "--only", "frame"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=110)
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stderr
