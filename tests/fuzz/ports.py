"""Bytes of all kinds at every port of real programs, and at the client's side of a connection."""

import asyncio
import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from tests.fuzz.decoders import ALL_METHODS, HELLO
from tests.fuzz.examples import filled
from tests.fuzz.mutation import mutated
from tests.harness.cluster import LocalCluster
from tests.harness.processes import free_port
from threefs.checksums import crc32c
from threefs.env.net import RealNet
from threefs.errors import ThreefsError
from threefs.rpc import frames
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.handshake import Identity
from threefs.rpc.methods import GET_STATUS, SPACE_INFO, STAT_FS, Method
from threefs.wire import common_pb2, manager_pb2, meta_pb2, storage_pb2

_ANSWER_S = 20.0
_MAGIC = frames.MAGIC.to_bytes(2, "little")
_SEALED_FROM = 7  # what stands before it is magic, version and the checksum itself
_BODY_BYTES_AT = frames.HEADER_BYTES - 20
_GROWTH_KIB = 600 << 10


def hello() -> bytes:
    body = HELLO.SerializeToString()
    return frames.encode(frames.HELLO, body=body)


def requests(service: str) -> list[bytes]:
    """Good frames of each method of a service, and the other kinds a client sends."""
    found = []
    for method in [method for method in ALL_METHODS if method.service.endswith(f".{service}")]:
        full = filled(method.request()).SerializeToString()
        bodies = (b"", full, full, b"\x08\x01\x10\x01", b"\x0a\x02ab")
        found += [frames.encode(frames.REQUEST, method.number, 0, 7, body, 0, 200, 1) for body in bodies]
        found.append(frames.encode(frames.REQUEST, method.number, 0, 8, b"", 100, 200, 1) + bytes(100))
    found += [frames.encode(frames.CANCEL, call_id=7), frames.encode(frames.PING)]
    return [*found, frames.encode(frames.SEGMENT, call_id=8, payload_bytes=9)]


def resealed(dice: random.Random, data: bytes) -> bytes:
    """Mostly with the checksum that a frame should have, so that what is behind it is met too."""
    if len(data) < frames.HEADER_BYTES or data[:2] != _MAGIC or dice.random() < 0.2:
        return data
    body_bytes = int.from_bytes(data[_BODY_BYTES_AT : _BODY_BYTES_AT + 4], "little")
    checksum = crc32c(data[_SEALED_FROM : frames.HEADER_BYTES + body_bytes])
    return data[: _SEALED_FROM - 4] + checksum.to_bytes(4, "little") + data[_SEALED_FROM:]


class Ports:
    """A real cluster, and the way to annoy it."""

    def __init__(self, cluster: LocalCluster) -> None:
        storage = cluster.storage[1]
        self.programs = {
            "manager": cluster.manager,
            "meta": cluster.meta,
            "storage": storage,
            "metrics": cluster.meta,
        }
        self.ports = {
            "manager": cluster.manager.address,
            "meta": cluster.meta.address,
            "storage": storage.address,
            "control": cluster.manager.addresses[1],
            "metrics": f"127.0.0.1:{cluster.meta.settings['metrics_port']}",
        }
        self._requests = {
            "manager": requests("Manager"),
            "meta": requests("Meta"),
            "storage": requests("Storage"),
            "control": requests("Manager"),
            "metrics": [
                b"GET /metrics HTTP/1.1\r\n\r\n",
                b"GET / HTTP/1.0\r\n\r\n",
                b"POST /metrics\r\n" + bytes(40_000),
            ],
        }

    def annoy(self, name: str, dice: random.Random, seconds: float, least: int) -> int:
        """Bursts of bytes, each on a connection of its own; how many."""
        program = self.programs.get(name, self.programs["manager"])
        before = _resident_kib(program.process.pid)
        end = time.monotonic() + seconds
        bursts = 0
        while time.monotonic() < end or bursts < least:
            self._burst(name, dice)
            bursts += 1
            if bursts % 50 == 0:
                self.check(name)
        self.check(name)
        assert program.process.poll() is None, f"{name} has ended\n{program.log()}"
        # A handler that fails in a way that it did not foresee answers all the same, and tells its log.
        assert "Traceback" not in program.log(), f"{name} met an error that it does not know\n{program.log()[-5000:]}"
        assert _resident_kib(program.process.pid) - before < _GROWTH_KIB, f"{name} has grown by too much"
        return bursts

    def _burst(self, name: str, dice: random.Random) -> None:
        host, port = self.ports[name].rsplit(":", 1)
        data = b"" if name == "metrics" or dice.random() < 0.2 else hello()
        data += b"".join(resealed(dice, mutated(dice, self._requests[name])) for _ in range(dice.randrange(1, 6)))
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as stream:
            stream.sendall(data)
            if dice.random() < 0.3:
                stream.settimeout(0.01)
                stream.recv(1 << 16)

    def check(self, name: str) -> None:
        """It still answers a proper call."""
        if name == "metrics":
            with urlopen(f"http://{self.ports[name]}/metrics", timeout=_ANSWER_S) as reply:
                assert reply.read()
            return
        methods: dict[str, tuple[Method, object]] = {  # type: ignore[type-arg]
            "manager": (GET_STATUS, manager_pb2.GetStatusRequest()),
            "control": (GET_STATUS, manager_pb2.GetStatusRequest()),
            "meta": (STAT_FS, meta_pb2.StatFsRequest()),
            "storage": (SPACE_INFO, storage_pb2.SpaceInfoRequest()),
        }
        method, request = methods[name]
        address = self.ports["manager" if name == "control" else name]

        async def ask() -> None:
            peers = ConnectionPool(RealNet(), Identity("", "0" * 32))
            try:
                await peers.call(address, method, request, timeout_s=_ANSWER_S)
            finally:
                await peers.close()

        asyncio.run(ask())


@contextlib.contextmanager
def ports() -> Iterator[Ports]:
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster(Path(directory))
        try:
            cluster.start()
            cluster.meta.stop()
            cluster.meta.settings["metrics_port"] = free_port()
            cluster.meta.start()
            yield Ports(cluster)
        finally:
            cluster.kill()


def annoy_client(dice: random.Random, seconds: float, least: int) -> int:
    """A server that answers with anything; how many calls were made."""
    return asyncio.run(_annoy_client(dice, seconds, least))


async def _annoy_client(dice: random.Random, seconds: float, least: int) -> int:
    body = common_pb2.Hello(protocol=frames.PROTOCOL, client_id="ab" * 16).SerializeToString()
    greeting = frames.encode(frames.HELLO, body=body)
    reply = manager_pb2.GetStatusReply(cluster_id="x").SerializeToString()
    answers = [
        frames.encode(frames.RESPONSE, 105, 0, 1, reply),
        frames.encode(frames.RESPONSE, 105, frames.FAILED, 1, b"\x08\x1e\x12\x00"),
        frames.encode(frames.RESPONSE, 105, 0, 1, reply, 50) + bytes(50),
        frames.encode(frames.GOAWAY),
        frames.encode(frames.SEGMENT, call_id=1, payload_bytes=5) + bytes(5),
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(greeting if dice.random() < 0.9 else mutated(dice, [greeting]))
            await reader.read(1 << 16)
            writer.write(b"".join(resealed(dice, mutated(dice, answers)) for _ in range(dice.randrange(1, 4))))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    end = time.monotonic() + seconds
    calls = 0
    while time.monotonic() < end or calls < least:
        peers = ConnectionPool(RealNet(), Identity("", "0" * 32))
        with contextlib.suppress(ThreefsError):
            await peers.call(address, GET_STATUS, manager_pb2.GetStatusRequest(), timeout_s=0.5)
        await peers.close()
        calls += 1
    server.close()
    await server.wait_closed()
    return calls


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
