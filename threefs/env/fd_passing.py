"""Descriptors that another program opens for this one."""

import os
import socket
import subprocess
from collections.abc import Sequence


def descriptor_of(command: Sequence[str], variable: str) -> tuple[int | None, str]:
    """Run a program that sends an open descriptor through the socket whose number is in `variable`.

    (the descriptor, or None if it sent none; what the program said). Raises FileNotFoundError if it is not there.
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
