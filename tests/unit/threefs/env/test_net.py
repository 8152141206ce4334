import asyncio
import errno
import socket

import pytest

from tests.harness.rpc import LOOPS, TcpNet
from threefs.env import ports
from threefs.env.net import Listener, Net, RealNet, SocketListener, Stream, parse_address
from threefs.errors import ConnectionRefused, InvalidArgument, Unavailable


@pytest.mark.parametrize(
    ("text", "parts"), [("127.0.0.1:7000", ("127.0.0.1", 7000)), ("[::1]:80", ("::1", 80)), ("a.b:0", ("a.b", 0))]
)
def test_addresses(text: str, parts: tuple[str, int]) -> None:
    assert parse_address(text) == parts


@pytest.mark.parametrize(
    "text", ["", "host", ":7000", "host:", "host:x", "host:-1", "host:65536", "host:1:x", "h:²", "h:" + "1" * 5000]
)
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="127"):
        parse_address(text)


async def receive(stream: Stream, length: int) -> bytes:
    """Wait for so many bytes, or the end."""
    found = bytearray()
    more = asyncio.Event()
    stream.on_readable(more.set)
    while len(found) < length:
        await more.wait()
        more.clear()
        buffer = memoryview(bytearray(length - len(found)))
        half = len(buffer) // 2
        try:
            count = stream.recv_into([buffer[:half], buffer[half:]])
        except BlockingIOError:
            continue
        if not count:
            break
        found += buffer[:count]
    stream.on_readable(None)
    return bytes(found)


async def pair(net: Net, server: Net) -> tuple[Stream, Stream, Listener]:
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await server.listen("127.0.0.1", 0, accepted.put_nowait)
    stream = await net.connect(listener.address, 5)
    return stream, await accepted.get(), listener


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("net", [RealNet, TcpNet])
async def test_bytes_and_the_end_of_the_stream_arrive(net: type[RealNet], loop: str) -> None:
    one, other, listener = await pair(net(), RealNet())
    assert one.send([b"he", bytearray(b"ll"), memoryview(b"o")]) == 5
    assert await receive(other, 5) == b"hello"
    one.close()
    assert await receive(other, 1) == b""
    other.close()
    other.close()
    listener.close()


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_full_stream_blocks_and_tells_when_it_goes_on(loop: str) -> None:
    one, other, listener = await pair(RealNet(), RealNet())
    piece = bytes(1 << 20)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += one.send([piece])
    writable = asyncio.Event()
    one.on_writable(writable.set)
    assert len(await receive(other, sent)) == sent
    await writable.wait()
    one.on_writable(None)
    for end in (one, other, listener):
        end.close()


@pytest.mark.parametrize("loop", LOOPS)
async def test_many_that_connect_in_one_moment_get_in_together(loop: str) -> None:
    """One of them got in with each step of the loop, which may take a second when a process is busy."""
    accepted: list[Stream] = []
    listener = await RealNet().listen("127.0.0.1", 0, accepted.append)
    clients = [socket.create_connection(parse_address(listener.address)) for _ in range(50)]
    steps = 0
    while len(accepted) < 50:
        await asyncio.sleep(0)
        steps += 1
    assert steps < 10
    for client in clients:
        client.close()
    for stream in accepted:
        stream.close()
    listener.close()


@pytest.mark.parametrize("lacks", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_a_listener_without_the_means_to_accept_leaves_the_loop_to_others_for_a_while(
    lacks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted: list[Stream] = []
    listener = await RealNet().listen("127.0.0.1", 0, accepted.append)
    assert isinstance(listener, SocketListener)
    listening, tries = listener._sockets[0], 0

    class Poor:
        def accept(self) -> None:
            nonlocal tries
            tries += 1
            raise OSError(lacks, "none is left")

        def fileno(self) -> int:
            return listening.fileno()

    listener._ready(Poor())  # type: ignore[arg-type]
    client = socket.create_connection(parse_address(listener.address))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not accepted and tries == 1, "nobody looks at the listening socket"
    listener.close()
    client.close()


async def test_a_machine_that_is_gone_is_noticed_by_either_side_within_a_minute() -> None:
    one, other, listener = await pair(TcpNet(), RealNet())
    for stream in (one, other):
        sock = stream._socket  # type: ignore[attr-defined]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, pause, tries = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + pause * tries <= 60
        assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
        stream.close()
    listener.close()


async def test_peers_on_this_host_meet_on_the_unix_socket() -> None:
    one, other, listener = await pair(RealNet(), RealNet())
    assert other.peer == "local" and one.peer == listener.address
    one.close()
    other.close()
    one, other, second = await pair(TcpNet(), RealNet())
    assert other.peer.startswith("127.0.0.1:")
    for end in (one, other, listener, second):
        end.close()


async def test_what_cannot_be_reached_or_bound_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await RealNet().connect("127.0.0.1:1", 1)
    with pytest.raises(Unavailable, match="no such host"):
        await RealNet().connect("no such host:1", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            await RealNet().listen("127.0.0.1", port, lambda stream: None)


async def test_a_port_that_is_taken_is_passed_over_by_those_that_want_any(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "candidates", lambda: iter([port, ports.ANY]))
        listener = await RealNet().listen("127.0.0.1", 0, lambda stream: None)
        assert listener.address != f"127.0.0.1:{port}"
        listener.close()
        monkeypatch.setattr(ports, "candidates", lambda: iter([port]))
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}: .* in use; end what listens there"):
            await RealNet().listen("127.0.0.1", 0, lambda stream: None)


@pytest.mark.parametrize("port", [-1, 65_536, 70_000])
async def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    """The resolver takes it modulo 65536, so that a service listened where nobody looks for it."""
    with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}: a port is from 0 to 65535"):
        await RealNet().listen("127.0.0.1", port, lambda stream: None)


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "\ud800"])
async def test_what_cannot_be_the_name_of_a_host_is_unavailable(host: str) -> None:
    """Whoever registered under such a name made the calls of all clients fail with an error of the codec."""
    with pytest.raises(Unavailable, match="no valid name"):
        await RealNet().connect(f"{host}:80", 1)
    with pytest.raises(Unavailable, match="no valid name"):
        await RealNet().listen(host, 80, lambda stream: None)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_port_without_a_listener_is_not_connected_with_itself(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may choose the port of a service that is gone for the end of the client. Calls failed for good then,
    and the service could not start again."""

    class Chosen(socket.socket):
        def connect(self, where: object) -> None:
            if self.family == socket.AF_INET:
                self.bind(where)  # type: ignore[arg-type]
            super().connect(where)  # type: ignore[arg-type]

    async def error_of_free_port() -> Unavailable:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with monkeypatch.context() as patched, pytest.raises(Unavailable) as failed:
            patched.setattr(socket, "socket", Chosen)
            await TcpNet().connect(f"127.0.0.1:{port}", 5)
        if isinstance(failed.value, ConnectionRefused):
            socket.create_server(("127.0.0.1", port)).close()
        return failed.value

    errors = [await error_of_free_port()]
    while "already in use" in str(errors[-1]) and len(errors) < 5:  # another program has taken the port meanwhile
        errors.append(await error_of_free_port())
    assert isinstance(errors[-1], ConnectionRefused) and "refused" in str(errors[-1])
