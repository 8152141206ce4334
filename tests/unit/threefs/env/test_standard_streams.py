"""The event loop goes on while a standard stream waits. Each test would hang if it did not."""

import asyncio
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from threefs.env import standard_streams

CONTENT = os.urandom(1 << 20)


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb") as sink:
        yield source, sink


async def test_a_pipe_is_read_while_the_same_loop_writes_it(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    source, sink = pipe

    async def produce() -> None:
        await asyncio.sleep(0.05)
        await standard_streams.write(sink, CONTENT)
        await standard_streams.write(sink, b"end")
        sink.close()

    producer = asyncio.create_task(produce())
    assert b"".join([piece async for piece in standard_streams.pieces(source)]) == CONTENT + b"end"
    await producer


async def test_reading_an_empty_pipe_can_be_interrupted(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    pieces = standard_streams.pieces(pipe[0])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(pieces), 0.05)


async def test_writing_a_full_pipe_can_be_interrupted(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(standard_streams.write(pipe[1], CONTENT), 0.05)


async def test_a_pipe_without_a_reader_is_an_error(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    source, sink = pipe
    writing = asyncio.create_task(standard_streams.write(sink, CONTENT))
    await asyncio.sleep(0.05)
    source.close()
    with pytest.raises(BrokenPipeError):
        await writing


async def test_files_are_read_and_written(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as sink:
        sink.write(b"before ")
        await standard_streams.write(sink, CONTENT)
    with open(tmp_path / "file", "rb") as source:
        assert b"".join([piece async for piece in standard_streams.pieces(source)]) == b"before " + CONTENT
    with open(os.devnull, "rb") as source:
        assert [piece async for piece in standard_streams.pieces(source)] == []


async def test_output_is_collected_in_memory() -> None:
    sink = io.BytesIO()
    await standard_streams.write(sink, CONTENT)
    assert sink.getvalue() == CONTENT


def test_paths_that_name_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/stderr")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "1").touch()
    found = {"/dev/stdout": 1, "/dev/fd/3": 3, "/proc/self/fd/0": 0, str(tmp_path / "link"): 2}
    none = ["", "1", "/dev/null", "/dev/fd", "/dev/fd/x", str(tmp_path / "1"), str(tmp_path / "loop"), "/none/1"]
    assert {path: standard_streams.descriptor_of(path) for path in [*found, *none]} == found | dict.fromkeys(none)
