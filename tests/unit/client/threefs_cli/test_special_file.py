"""The event loop goes on while nobody reads from a pipe. Each test would hang if it did not."""

import asyncio
import os
import socket
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from threefs_cli import special_file

from threefs.env import standard_streams

CONTENT = os.urandom(1 << 20)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


async def send(path: Path | str, content: bytes = CONTENT) -> None:
    async with special_file.opened(str(path)) as sink:
        await standard_streams.write(sink, content)


def test_what_is_special(pipe: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pipe)
    (tmp_path / "nowhere").symlink_to("none")
    (tmp_path / "file").touch()
    assert all(map(special_file.is_special, (str(pipe), f"{tmp_path}/link", "/dev/null")))
    assert not any(special_file.is_special(f"{tmp_path}/{name}") for name in (".", "file", "nowhere", "none"))


async def test_a_pipe_waits_for_its_reader_and_gets_everything(pipe: Path) -> None:
    sending = asyncio.create_task(send(pipe))
    await asyncio.sleep(0.05)
    assert await asyncio.to_thread(pipe.read_bytes) == CONTENT
    await sending
    await send("/dev/null")


@pytest.fixture
def silent_reader(pipe: Path) -> Iterator[None]:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    yield
    os.close(reader)


async def test_waiting_for_a_reader_can_be_interrupted(pipe: Path) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(pipe), 0.05)


@pytest.mark.usefixtures("silent_reader")
async def test_waiting_for_a_reader_that_stopped_can_be_interrupted(pipe: Path) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(pipe), 0.05)


async def test_waiting_for_a_terminal_can_be_interrupted() -> None:
    """It is ready for less than a write brings, and the event loop waited for the rest."""
    master, terminal = os.openpty()
    with open(master, "rb"), open(terminal, "wb"), pytest.raises(TimeoutError):
        await asyncio.wait_for(send(os.ttyname(terminal), b"x\n" * (1 << 19)), 0.5)


async def test_a_terminal_gets_everything() -> None:
    master, terminal = os.openpty()
    tty.setraw(terminal)
    with open(master, "rb") as reader, open(terminal, "wb"):
        sending = asyncio.create_task(send(os.ttyname(terminal)))
        assert await asyncio.to_thread(reader.read, len(CONTENT)) == CONTENT
        await sending


async def test_what_takes_no_bytes_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match=r"No such device or address: '.*/socket'"):
            await send(tmp_path / "socket")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        await send("/dev/full")
