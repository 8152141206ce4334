import asyncio
import os
import socket
from pathlib import Path

import pytest

from tests.harness.other_user import NOBODY, needs_root, nobody_does
from tests.harness.rpc import identity
from threefs.env import local_sockets
from threefs.env.local_sockets import Owner
from threefs.env.net import RealNet, Stream
from threefs.errors import ThreefsError, Unavailable
from threefs.rpc.connection_pool import ConnectionPool

SQUAT = """
import socket, sys
squat = socket.socket(socket.AF_UNIX)
squat.bind(chr(0) + sys.argv[1])
squat.listen()
print("squats", flush=True)
peer, _ = squat.accept()
print("heard", peer.recv(1 << 16), flush=True)
"""


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.9.9.9"])
def test_loopback_is_here(ip: str) -> None:
    assert local_sockets.is_of_this_host(ip)


@pytest.mark.parametrize(
    "ip", ["192.0.2.1", "203.0.113.9", "0.0.0.0", "::", "224.0.0.1", "2001:db8::1", "localhost", ""]
)
def test_what_is_elsewhere_or_no_address(ip: str) -> None:
    assert not local_sockets.is_of_this_host(ip)


def test_trusted_peers() -> None:
    assert Owner(1, 0).is_trusted and Owner(1, os.geteuid()).is_trusted
    assert not Owner(1, os.geteuid() + 1).is_trusted


def listening(name: bytes) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(name)
    sock.listen()
    return sock


async def test_an_address_of_another_host_is_never_looked_for_here() -> None:
    """Somebody here has taken the name that would belong to a service elsewhere."""
    with listening(local_sockets.name_of("192.0.2.1", 7000)) as squat:
        squat.setblocking(False)
        with pytest.raises(Unavailable):
            await RealNet().connect("192.0.2.1:7000", 0.3)
        with pytest.raises(BlockingIOError):
            squat.accept()


async def test_a_taken_name_is_an_error_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (
        listening(local_sockets.name_of("127.0.0.1", port)),
        pytest.raises(Unavailable, match=f"{port}: process {os.getpid()} of user {os.getuid()} holds.*another port"),
    ):
        await RealNet().listen("127.0.0.1", port, lambda stream: None)
    listener = await RealNet().listen("127.0.0.1", port, lambda stream: None)  # nothing of the failure is left
    listener.close()


async def test_any_port_means_one_of_which_the_name_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    name_of = local_sockets.name_of

    def often_taken(host: str, port: int) -> bytes:
        if port not in tried:
            tried.append(port)
        return name_of(host, 1) if len(tried) < 3 else name_of(host, port)

    monkeypatch.setattr(local_sockets, "name_of", often_taken)
    with listening(name_of("127.0.0.1", 1)):
        listener = await RealNet().listen("127.0.0.1", 0, lambda stream: None)
        assert len(tried) == 3 and listener.address == f"127.0.0.1:{tried[2]}"
        listener.close()


@needs_root
async def test_a_socket_of_another_user_is_not_spoken_to(tmp_path: Path) -> None:
    """Nobody takes the name of a service that is down: a client says nothing to it, and goes to the port."""
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        with nobody_does(SQUAT, f"threefs.127.0.0.1.{port}", home=tmp_path) as squatter:
            assert local_sockets.who_listens("127.0.0.1", port) == Owner(squatter.pid, NOBODY)
            stream = await RealNet().connect(f"127.0.0.1:{port}", 5)
            assert str(port) in stream.service and not stream.service.startswith("@")
            stream.close()
        peers = ConnectionPool(RealNet(), identity(token="s3cr3t"))
        with nobody_does(SQUAT, f"threefs.127.0.0.1.{port}", home=tmp_path) as squatter:
            tcp.close()
            with pytest.raises(ThreefsError):
                await peers.connect(f"127.0.0.1:{port}", 5)
            assert squatter.stdout is not None and squatter.stdout.readline() == "heard b''\n"
        await peers.close()


@needs_root
async def test_a_service_whose_name_another_user_holds_does_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    squat = nobody_does(SQUAT, f"threefs.127.0.0.1.{port}", home=tmp_path)
    with squat as squatter, pytest.raises(Unavailable, match=f"process {squatter.pid} of user {NOBODY}"):
        await RealNet().listen("127.0.0.1", port, lambda stream: None)


async def test_a_stream_on_the_socket_ends_as_any_other() -> None:
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await RealNet().listen("127.0.0.1", 0, accepted.put_nowait)
    stream = await RealNet().connect(listener.address, 5)
    assert stream.service.startswith("@threefs.127.0.0.1.")
    for end in (stream, await accepted.get(), listener):
        end.close()
    with pytest.raises(Unavailable):
        await RealNet().connect(listener.address, 5)
