"""The network: non-blocking byte streams with callbacks that say when they are ready.

Calls on a stream never wait. The hot path needs this, because no transport is between the socket and the buffers of the
caller. And the interface is small enough for a simulation to replace it.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from threefs.env import local_sockets, packet_marks, ports
from threefs.env.packet_marks import PacketMark
from threefs.errors import ConnectionRefused, InvalidArgument, Unavailable

Buffer = bytes | bytearray | memoryview
Callback = Callable[[], None]

SOCKET_BUFFER_BYTES = 4 << 20
BACKLOG = 1024
_ACCEPTS_PER_STEP = 64  # of the loop: one each would keep newcomers waiting, and give up, while steps are long
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_PORT = 65535
#: The kernel takes at most this many pieces in one call (IOV_MAX).
MAX_PIECES = 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the close ends the connection at once

#: The loss of a machine is noticed after a minute: an idle connection by keepalive, a busy one by the user timeout.
_KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # ms
)


class Stream(Protocol):
    """One connection. `peer` is the address of the other side, for messages."""

    peer: str
    service: str  # the name of the accepting end, as both ends see it; a relay between them has another one
    is_local: bool  # a UNIX socket: nothing passes a network

    def recv_into(self, views: Sequence[memoryview]) -> int:
        """Fill the views from the first one on. Returns the number of bytes, 0 at the end of the stream.

        Raises BlockingIOError, OSError.
        """
        ...

    def send(self, pieces: Sequence[Buffer]) -> int:
        """Hand pieces to the kernel, which copies them. Returns the number of bytes that it took.

        Raises BlockingIOError, OSError.
        """
        ...

    def on_readable(self, callback: Callback | None) -> None: ...

    def on_writable(self, callback: Callback | None) -> None: ...

    def mark(self, mark: PacketMark) -> None:
        """Mark the packets that this end sends from now on, where that is possible."""
        ...

    def close(self) -> None: ...


class Listener(Protocol):
    address: str  # "host:port"

    def close(self) -> None: ...


class Net(Protocol):
    async def connect(self, address: str, timeout_s: float) -> Stream:
        """Connect to an address. Raises Unavailable, which names the address."""
        ...

    async def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        """Listen, and call `accept` for each connection. Port 0 picks a free one. Raises Unavailable."""
        ...


def parse_address(address: str) -> tuple[str, int]:
    """Split "host:port" ("[::1]:7000" for IPv6)."""
    host, colon, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(MAX_PORT))  # int() takes no 5000 digits
    if not colon or not host or not is_number or int(port) > MAX_PORT:
        raise InvalidArgument(f"{address!r} is not an address; an address looks like 127.0.0.1:7000")
    return host.strip("[]"), int(port)


class SocketStream:
    """A stream over a connected socket of the running loop."""

    def __init__(self, sock: socket.socket, peer: str, service: str = "") -> None:
        self.peer = peer
        self.service = service
        self.is_local = sock.family == socket.AF_UNIX
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        _STREAMS.add(self)
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for level, option, value in _KEEPALIVE_OPTIONS:
                sock.setsockopt(level, option, value)

    def recv_into(self, views: Sequence[memoryview]) -> int:
        return self._socket.recvmsg_into(views)[0]

    def send(self, pieces: Sequence[Buffer]) -> int:
        return self._socket.sendmsg(pieces)

    def on_readable(self, callback: Callback | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._socket)
        else:
            self._loop.add_reader(self._socket, callback)

    def on_writable(self, callback: Callback | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._socket)
        else:
            self._loop.add_writer(self._socket, callback)

    def mark(self, mark: PacketMark) -> None:
        packet_marks.apply(self._socket, mark)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self.on_readable(None)
            self.on_writable(None)
            self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copy of the descriptor, but not through the loop, whose epoll set the parent
        uses."""
        descriptor = self._socket.detach()
        if descriptor >= 0:
            os.close(descriptor)


#: All open streams. A forked child closes its copies, so that a peer sees the end of a connection of the parent.
_STREAMS: weakref.WeakSet[SocketStream] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for stream in list(_STREAMS):
        stream.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


class SocketListener:
    """Accepts on several sockets (TCP and the UNIX socket beside it) for one address."""

    def __init__(self, address: str, sockets: Sequence[socket.socket], accept: Callable[[Stream], None]) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._accept = accept
        for sock in sockets:
            self._loop.add_reader(sock, self._ready, sock)

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_STEP):
            try:
                sock, peer = listening.accept()
            except OSError as error:
                if error.errno in _SCARCE:  # without a pause this would spin until there is some
                    self._loop.remove_reader(listening)
                    self._loop.call_later(0.1, self._resume, listening)
                return
            whose = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
            self._accept(SocketStream(sock, whose, _shown(sock.getsockname())))

    def _resume(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._ready, listening)

    def close(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()


class RealNet:
    """TCP, and for peers on this host the UNIX socket beside it (see `local_sockets`)."""

    def __init__(self, *, unix_sockets: bool = True) -> None:
        """Without `unix_sockets` it connects to peers on this host by TCP as well."""
        self._unix_sockets = unix_sockets

    async def connect(self, address: str, timeout_s: float) -> Stream:
        host, port = parse_address(address)
        sock: socket.socket | None = None
        try:
            async with asyncio.timeout(timeout_s):
                family, kind, proto, where = await _resolved(host, port)
                local = await self._connect_unix(host, port, where[0])
                if local is not None:
                    return SocketStream(local, address, _shown(local.getpeername()))
                sock = socket.socket(family, kind | socket.SOCK_CLOEXEC, proto)
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, where)
                if sock.getsockname() == sock.getpeername():
                    # Nobody listens, and the kernel has chosen that port for this end: TCP then connects it with
                    # itself. It would take its own HELLO for that of a service, and keep the service off its port,
                    # after an orderly close for a minute more.
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                return SocketStream(sock, address, _shown(sock.getpeername()))
        except (OSError, TimeoutError) as error:
            if sock is not None:
                sock.close()
            reason = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else error.strerror or error
            failure = ConnectionRefused if isinstance(error, ConnectionRefusedError) else Unavailable
            raise failure(f"cannot connect to {address}: {reason}") from None
        except asyncio.CancelledError:
            if sock is not None:
                sock.close()
            raise

    async def _connect_unix(self, host: str, port: int, ip: str) -> socket.socket | None:
        if not self._unix_sockets or not local_sockets.is_of_this_host(ip):
            return None
        return local_sockets.connect(host, port)

    async def listen(self, host: str, port: int, accept: Callable[[Stream], None]) -> Listener:
        if not 0 <= port <= MAX_PORT:  # the resolver would take it modulo 65536
            raise _cannot_listen(host, port, f"a port is from 0 to {MAX_PORT}")
        try:
            family, kind, proto, where = await _resolved(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error.strerror or error) from None
        taken: Unavailable | None = None
        for number in [port] if port else ports.candidates():
            try:
                tcp = socket.socket(family, kind | socket.SOCK_CLOEXEC, proto)
                sockets = _listening_at(host, tcp, (where[0], number, *where[2:]))
            except _Taken as error:
                taken = _cannot_listen(host, number, error)
                continue
            name = f"[{host}]" if ":" in host else host
            return SocketListener(f"{name}:{sockets[0].getsockname()[1]}", sockets, accept)
        assert taken is not None, "there are ports to try"
        raise taken


async def _resolved(host: str, port: int) -> tuple[int, int, int, Any]:
    """(family, kind, protocol, where) of the first address of a host. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:  # the host is a name; only numeric addresses need no thread
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # for example a label of more than 63 characters
        raise OSError(errno.EINVAL, "the host is no valid name") from None
    family, kind, proto, _, where = found[0]
    return family, kind, proto, where


def _shown(name: Any) -> str:
    """The name of a socket, the same at both ends of a connection. (A socket for both versions of IP shows the address
    1.2.3.4 as "::ffff:1.2.3.4".)"""
    if isinstance(name, tuple):
        return f"{name[0].removeprefix('::ffff:')} {name[1]}"
    return os.fsdecode(name).replace("\0", "@")


def _cannot_listen(host: str, port: int, reason: object) -> Unavailable:
    return Unavailable(f"cannot listen on {host}:{port}: {reason}")


class _Taken(Exception):
    """Another program has the port, or the name of the UNIX socket beside it."""


def _holder_of_the_name(host: str, port: int) -> str:
    holder = local_sockets.who_listens(host, port)
    whose = "another process" if holder is None else f"process {holder.pid} of user {holder.uid}"
    return f"{whose} holds the name of the UNIX socket beside it; end that process, or choose another port"


def _listening_at(host: str, tcp: socket.socket, where: Any) -> list[socket.socket]:
    """The TCP socket, and for an address of this host the UNIX socket beside it. Raises _Taken, or Unavailable."""
    try:
        _listening(tcp, where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _Taken(f"{error.strerror}; end what listens there, or choose another port") from None
        raise _cannot_listen(host, where[1], error.strerror or error) from None
    if not local_sockets.is_of_this_host(where[0]):
        return [tcp]
    bound = tcp.getsockname()[1]
    try:
        return [tcp, _listening_beside(host, bound)]
    except OSError as error:
        tcp.close()
        if error.errno == errno.EADDRINUSE:
            raise _Taken(_holder_of_the_name(host, bound)) from None
        reason = f"the UNIX socket beside it cannot be made: {error.strerror or error}"
        raise _cannot_listen(host, bound, reason) from None


def _listening_beside(host: str, port: int) -> socket.socket:
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    return _listening(unix, local_sockets.name_of(host, port))


def _listening(sock: socket.socket, where: object) -> socket.socket:
    try:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)  # type: ignore[arg-type]
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
