"""Telling a service manager how we are: datagrams of lines to the socket that $NOTIFY_SOCKET names (sd_notify).

The protocol is a few lines of text, so no library is needed. Without that variable nothing is sent.
"""

import contextlib
import os
import socket

_MICROSECONDS = 1_000_000
#: For a service manager that does not take its datagrams: our own event loop must not stand still for longer.
_PATIENCE_S = 0.2


def notify(*lines: str) -> None:
    """Send lines like READY=1, STOPPING=1, WATCHDOG=1, STATUS=text. Errors are ignored: nobody may be listening."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(_PATIENCE_S)
        sock.connect(address)
        sock.send("\n".join(lines).encode())


def watchdog_s() -> float:
    """How often the service manager wants to hear WATCHDOG=1 from this process, at least; 0 if it does not."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return int(os.environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
    except ValueError:
        return 0.0
