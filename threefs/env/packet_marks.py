"""Marks of the packets of a connection, by which switches and the kernel tell important ones from others.

Networks read the code point (DSCP) in the IP header. The queueing discipline of this machine reads the priority of the
socket. A kernel or a container that refuses a mark is no failure: the connection works without it.
"""

import contextlib
import socket
from typing import NamedTuple

MAX_DSCP = 63
#: A socket may have this priority without special rights.
MAX_PRIORITY = 6
_ECN_BITS = 2  # the code point is above them


class PacketMark(NamedTuple):
    dscp: int = 0
    priority: int = 0  # SO_PRIORITY


def apply(sock: socket.socket, mark: PacketMark) -> None:
    """Mark what is sent from now on."""
    tos = mark.dscp << _ECN_BITS
    if sock.family == socket.AF_INET:
        _set(sock, socket.IPPROTO_IP, socket.IP_TOS, tos)
    elif sock.family == socket.AF_INET6:
        _set(sock, socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        _set(sock, socket.IPPROTO_IP, socket.IP_TOS, tos)  # of an IPv4 peer of a socket for both versions
    _set(sock, socket.SOL_SOCKET, socket.SO_PRIORITY, mark.priority)  # the last one: IP_TOS sets it, too


def _set(sock: socket.socket, level: int, option: int, value: int) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(level, option, value)
