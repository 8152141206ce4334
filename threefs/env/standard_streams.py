"""Reads standard input and writes standard output without making the event loop wait.

Only local files are used in threads. A thread that waits for a pipe, a socket or a terminal could not be interrupted
with Ctrl-C, so these are read and written only when they are ready.
"""

import asyncio
import io
import os
import select
import stat
from collections.abc import AsyncIterator
from typing import BinaryIO

from aiofiles.os import wrap

from threefs.env.clock import CLOCK

_PIECE_BYTES = 8 << 20
_OWN_DESCRIPTORS = "/proc/self/fd"
_MAX_LINKS = 40  # as the kernel
#: A pipe that is ready takes that many bytes at once (pipe(7)).
_READY_BYTES = select.PIPE_BUF
_RETRY_S = 0.01


def descriptor_of(path: str) -> int | None:
    """The number of the descriptor of this process that a path names, as /dev/stdout and /dev/fd/3 do. None: it names a
    file. One that leads to a file cannot be told from that file once it is opened."""
    own = os.path.realpath(_OWN_DESCRIPTORS)
    for _ in range(_MAX_LINKS):
        parent, name = os.path.split(path)
        if name.isdecimal() and os.path.realpath(parent) == own:
            return int(name)
        try:
            path = os.path.join(parent, os.readlink(path))
        except OSError:  # no link
            break
    return None


async def pieces(source: BinaryIO) -> AsyncIterator[bytes]:
    """The content of a stream from which nothing was read before, to its end."""
    file = source.fileno()
    if not may_wait_forever(file):
        read = wrap(source.read)
        while piece := await read(_PIECE_BYTES):
            yield piece
        return
    while True:
        await _ready(file, select.POLLIN)
        if not (piece := os.read(file, _PIECE_BYTES)):
            return
        yield piece


async def write(sink: BinaryIO, content: bytes | memoryview) -> None:
    """Write everything to a stream. Raises OSError."""
    try:
        file, rest = sink.fileno(), memoryview(content)
    except io.UnsupportedOperation:  # a program that runs the command in its own process collects the output in memory
        sink.write(content)
        return
    sink.flush()
    if not may_wait_forever(file):
        write_some = wrap(os.write)
        while rest:
            rest = rest[await write_some(file, rest) :]
        return
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    while rest:
        if not poll.poll(0):
            await _ready(file, select.POLLOUT)
        try:
            rest = rest[os.write(file, rest[:_READY_BYTES]) :]
        except BlockingIOError:  # a terminal is ready also where it has too little room for the next character
            await CLOCK.sleep(_RETRY_S)


def may_wait_forever(file: int) -> bool:
    """Whether the other end may never read or write, so that no thread should wait for it."""
    kind = os.fstat(file).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(file)


async def _ready(file: int, event: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (
        (loop.add_reader, loop.remove_reader) if event == select.POLLIN else (loop.add_writer, loop.remove_writer)
    )
    add(file, ready.set)
    try:
        await ready.wait()
    finally:
        remove(file)
