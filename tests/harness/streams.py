"""Waiting on the streams of threefs.env.net, of whichever network."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from threefs.env.net import Listener, Net, Stream

T = TypeVar("T")


async def _when(register: Callable[[Callable[[], None] | None], None], attempt: Callable[[], T]) -> T:
    """What `attempt` returns as soon as it does not raise BlockingIOError."""
    ready = asyncio.Event()
    register(ready.set)
    try:
        while True:
            try:
                return attempt()
            except BlockingIOError:
                ready.clear()
            await ready.wait()
    finally:
        register(None)


async def receive(stream: Stream, length: int) -> bytes:
    """So many bytes, or fewer if the stream ends. Raises OSError."""
    found = bytearray()
    while len(found) < length:
        buffer = memoryview(bytearray(min(length - len(found), 1 << 20)))
        count = await _when(stream.on_readable, lambda into=buffer: stream.recv_into([into]))  # type: ignore[misc]
        if not count:
            break
        found += buffer[:count]
    return bytes(found)


async def send(stream: Stream, data: bytes) -> None:
    """All of it. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[await _when(stream.on_writable, lambda rest=left: stream.send([rest])) :]  # type: ignore[misc]


async def failure(stream: Stream) -> OSError:
    """The error that this end comes to see by sending."""
    while True:
        try:
            await send(stream, b"?" * 1000)
        except OSError as error:
            return error
        await asyncio.sleep(0.01)


async def pair(here: Net, there: Net, host: str) -> tuple[Stream, Stream, Listener]:
    """A connection from one to the other: both ends, and the listener."""
    accepted: asyncio.Queue[Stream] = asyncio.Queue()
    listener = await there.listen(host, 0, accepted.put_nowait)
    stream = await here.connect(listener.address, 5)
    return stream, await accepted.get(), listener
