"""Messages to the service manager (sd_notify): datagrams of lines to the socket that $NOTIFY_SOCKET names.

The protocol is a few lines of text, so no library is needed. Without that variable nothing is sent.
"""

import contextlib
import os
import socket

_MICROSECONDS = 1_000_000
#: A service manager that does not take its datagrams must not block the event loop for longer.
_TIMEOUT_S = 0.2


def notify(*lines: str) -> None:
    """Send lines like READY=1, STOPPING=1, WATCHDOG=1, STATUS=text. Errors are ignored."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(_TIMEOUT_S)
        sock.connect(address)
        sock.send("\n".join(lines).encode())


def watchdog_s() -> float:
    """The longest time between two WATCHDOG=1 of this process in seconds; 0 if the service manager expects none."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return int(os.environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
    except ValueError:
        return 0.0
