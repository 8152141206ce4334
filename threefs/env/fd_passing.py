"""Receiving a descriptor that another program has opened for this process."""

import os
import socket
import subprocess
from collections.abc import Sequence


def descriptor_of(command: Sequence[str], variable: str) -> tuple[int | None, str]:
    """Run a program that sends an open descriptor through the socket whose number is in `variable`.

    Returns the descriptor (None if the program sent none) and its error output. Raises FileNotFoundError if the program
    does not exist.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        environment = {**os.environ, variable: str(theirs.fileno())}
        done = subprocess.run(
            command,
            env=environment,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return (descriptors[0] if descriptors else None), done.stderr
