from collections.abc import Awaitable, Callable

import pytest
from threefs_client.data.read_ahead import ReadAheadBudget
from threefs_client.data.read_stream import ReadStream

from tests.harness.virtual_time import run_virtual
from tests.unit.client.threefs_client.data.test_read_ahead import KIB, MIB, SlowFile

LINES = b"".join(b"line %d\n" % number for number in range(200_000))


def play(scene: Callable[[SlowFile, ReadStream], Awaitable[None]], content: bytes = LINES) -> None:
    file = SlowFile(content)

    async def run() -> None:
        await scene(file, ReadStream(file, MIB, ReadAheadBudget(MIB * 4)))

    run_virtual(run())


async def line(stream: ReadStream, limit: int = -1) -> bytes:
    """As a file object reads."""
    found = stream.cut_line(limit) or stream.readline_now(limit, cut=True)
    stream.extend()
    return await stream.readline(limit) if found is None else found


def test_lines_come_in_order_and_the_position_is_behind_the_last_one() -> None:
    async def scene(file: SlowFile, stream: ReadStream) -> None:
        at = 0
        while got := await line(stream):
            assert got == LINES[at : at + len(got)] and got.endswith(b"\n")
            at += len(got)
            assert stream.position == at
        assert at == len(LINES)

    play(scene)


@pytest.mark.parametrize("other", ["read", "readinto", "part", "peek", "same place"])
def test_other_reads_between_the_lines_do_not_end_the_read_ahead(other: str) -> None:
    async def scene(file: SlowFile, stream: ReadStream) -> None:
        at, number = 0, 0
        while got := await line(stream):
            at, number = at + len(got), number + 1
            if number % 50:
                continue
            if other == "read":
                got = stream.read_now(20) or await stream.read(20)
            elif other == "readinto":
                buffer = bytearray(20)
                done = stream.readinto_now(memoryview(buffer))
                got = bytes(buffer[: await stream.readinto(memoryview(buffer)) if done is None else done])
            elif other == "part":
                got = await line(stream, 3)
            elif other == "peek":
                assert LINES[at:].startswith(stream.peek_now() or await stream.peek(5))
                continue
            else:
                stream.position = stream.position
                continue
            stream.extend()
            assert got == LINES[at : at + len(got)]
            at += len(got)
        assert at == len(LINES) and len(file.reads) < 20

    play(scene)


def test_a_line_that_is_longer_than_a_block_is_found() -> None:
    long = b"x" * 300 * KIB + b"\n"

    async def scene(file: SlowFile, stream: ReadStream) -> None:
        assert [await line(stream) for _ in range(5)] == [long, b"short\n", long, b"end", b""]

    play(scene, long + b"short\n" + long + b"end")


def test_cleared_lines_are_read_again() -> None:
    async def scene(file: SlowFile, stream: ReadStream) -> None:
        for _ in range(1000):
            await line(stream)
        at = stream.position
        file.content = LINES[:at] + b"new\n"
        file.length = len(file.content)
        stream.clear()
        assert (stream.position, await line(stream), await line(stream)) == (at, b"new\n", b"")

    play(scene)
