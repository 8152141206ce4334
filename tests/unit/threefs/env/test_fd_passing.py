import os
import sys

import pytest

from threefs.env import fd_passing

SENDS = """
import os, socket
reader, writer = os.pipe()
os.write(writer, b"from there")
there = socket.socket(fileno=int(os.environ["PLACE"]))
socket.send_fds(there, [b"x"], [reader])
"""


def test_a_descriptor_comes_over() -> None:
    fd, _ = fd_passing.descriptor_of([sys.executable, "-c", SENDS], "PLACE")
    assert fd is not None and not os.get_inheritable(fd)
    assert os.read(fd, 100) == b"from there"
    os.close(fd)


def test_a_program_that_sends_nothing_is_heard() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('not permitted')"]
    assert fd_passing.descriptor_of(command, "PLACE") == (None, "not permitted\n")


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        fd_passing.descriptor_of(["/nowhere/program"], "PLACE")
