"""A server and its peers inside one test, over real sockets."""

import asyncio
import contextlib
import functools
import os
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec

import uvloop

from threefs.env.net import RealNet, parse_address
from threefs.rpc import frames, handshake
from threefs.rpc.connection_pool import ConnectionPool
from threefs.rpc.frames import HEADER_BYTES, Header
from threefs.rpc.handshake import Identity
from threefs.rpc.limits import Limits
from threefs.rpc.server import Server

P = ParamSpec("P")
LOOPS = ("asyncio", "uvloop")


def run(test: Callable[[], Awaitable[None]], loop: str = "uvloop") -> None:
    async def main() -> None:
        async with asyncio.timeout(200):  # for a hang; a busy machine may need more than a minute
            await test()

    if loop == "uvloop":
        uvloop.run(main())
    else:
        asyncio.run(main())


def on_a_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """For a coroutine below `@given`: each example runs on a loop of its own."""

    @functools.wraps(test)
    def example(*args: P.args, **kwargs: P.kwargs) -> None:
        run(functools.partial(test, *args, **kwargs))

    return example


def announcing(frame: bytes, body_bytes: int) -> bytes:
    """A frame whose header lies about its body."""
    place = HEADER_BYTES - 20
    return frame[:place] + body_bytes.to_bytes(4, "little") + frame[place + 4 :]


class TcpNet(RealNet):
    """Never the UNIX socket beside."""

    def __init__(self) -> None:
        super().__init__(unix_sockets=False)


NETS: dict[str, type[RealNet]] = {"tcp": TcpNet, "unix": RealNet}


def identity(cluster_id: str = "", **more: Any) -> Identity:
    return Identity(cluster_id, os.urandom(16).hex(), **more)


def hello_frame(who: Identity) -> bytes:
    """What a peer without a key says first."""
    return handshake.frame(handshake.hello(who).SerializeToString())


class Served:
    """`async with Served(...) as (server, peers, address)`; handlers are added before."""

    def __init__(
        self,
        *,
        net: type[RealNet] = RealNet,
        limits: Limits | None = None,
        mine: Identity | None = None,
        theirs: Identity | None = None,
    ) -> None:
        self.server = Server(RealNet(), mine or identity("c" * 32), limits=limits or Limits())
        self.peers = ConnectionPool(net(), theirs or identity())

    async def __aenter__(self) -> tuple[Server, ConnectionPool, str]:
        return self.server, self.peers, await self.server.start("127.0.0.1", 0)

    async def __aexit__(self, *_: object) -> None:
        await self.peers.close()
        await self.server.stop(1.0)


def buffers_taken(server: Server) -> list[int]:
    """The sizes of all that its pool lends from now on: one may have come back before a test looks."""
    taken, take = list[int](), server.pool.take

    def noted(length_bytes: int) -> memoryview:
        taken.append(length_bytes)
        return take(length_bytes)

    server.pool.take = noted  # type: ignore[method-assign]
    return taken


class RawPeer:
    """Speaks bytes, to say what a well-behaved client never says."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def __aenter__(self) -> "RawPeer":
        self.reader, self.writer = await asyncio.open_connection(*parse_address(self._address))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def greet(self) -> None:
        self.writer.write(hello_frame(identity()))
        header, _ = await self.frame()
        assert header.kind == frames.HELLO

    async def frame(self) -> tuple[Header, bytes]:
        head = await self.reader.readexactly(HEADER_BYTES)
        header = frames.decode(head, 0, Limits())
        return header, await self.reader.readexactly(header.body_bytes + header.inline_bytes)

    async def goodbye(self) -> Exception:
        """The error that the server sends before it closes."""
        while True:
            header, body = await self.frame()
            if header.kind == frames.GOAWAY:
                assert await self.reader.read() == b"", "it closes after the GOAWAY"
                return frames.error_from(body)
