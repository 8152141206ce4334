"""UNIX sockets beside TCP ports, for connections on one host, and the check of the process that listens.

The socket has an abstract name made of the TCP address. It needs no file, ends with the process, and is visible only
inside the same network namespace. But any process of the host may bind the name before the service does. So clients use
a name only for an address of this host, and ask the kernel which process listens before they send anything
(SO_PEERCRED). A service whose name is taken does not start.
"""

import ipaddress
import os
import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("3i")


class Owner(NamedTuple):
    """The process at the other end, at the time when it connected or began to listen."""

    pid: int
    uid: int

    @property
    def is_trusted(self) -> bool:
        """Whether it belongs to root or to the user of this process, who could read the memory of this process
        anyway."""
        return self.uid in (0, os.geteuid())


def name_of(host: str, port: int) -> bytes:
    """The name of the UNIX socket beside a TCP address."""
    return f"\0threefs.{host}.{port}".encode()


def is_of_this_host(ip: str) -> bool:
    """Whether packets to this numeric address stay here: a loopback address, or one of an interface.

    Only such an address can be bound. (A wildcard can be bound as well, but it is no address of a host.)
    """
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return False
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True


def owner(sock: socket.socket) -> Owner:
    """The process at the other end of a connected UNIX socket."""
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return Owner(pid, uid)


def connect(host: str, port: int) -> socket.socket | None:
    """Connect to the UNIX socket beside an address, without waiting. None if no process listens there, or one that this
    process has no reason to trust. Then the client uses TCP, where the service proves that it knows the key."""
    sock = _made()
    try:
        sock.connect(name_of(host, port))
        if owner(sock).is_trusted:
            return sock
    except OSError:
        pass
    sock.close()
    return None


def who_listens(host: str, port: int) -> Owner | None:
    """The process that listens on the UNIX socket beside an address; None if that cannot be found out."""
    with _made() as sock:
        try:
            sock.connect(name_of(host, port))
            return owner(sock)
        except OSError:
            return None


def _made() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.setblocking(False)
    return sock
