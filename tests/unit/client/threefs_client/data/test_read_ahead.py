import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest
from threefs_client.data.read_ahead import ReadAhead, ReadAheadBudget, _Piece

from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import Unavailable

KIB, MIB = 1 << 10, 1 << 20
CONTENT = bytes(range(251)) * (40 * KIB)


class SlowFile:
    """A file whose reads take a time, and may fail."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.length = len(content)
        self.reads: list[tuple[int, int]] = []
        self.running = self.most_running = self.bytes_running = self.most_bytes = 0
        self.fails = False

    async def refresh(self) -> None:
        self.length = len(self.content)

    async def read_into(self, offset: int, view: memoryview) -> int:
        self.reads.append((offset, len(view)))
        self.running += 1
        self.bytes_running += len(view)
        self.most_running = max(self.most_running, self.running)
        self.most_bytes = max(self.most_bytes, self.bytes_running)
        try:
            await asyncio.sleep(0.01)
        finally:
            self.running -= 1
            self.bytes_running -= len(view)
        if self.fails:
            raise Unavailable("no replica answers")
        part = self.content[offset : offset + len(view)]
        view[: len(part)] = part
        return len(part)


async def take(ahead: ReadAhead, offset: int, length: int) -> bytes:
    """As a file object reads."""
    found = ahead.get(offset, length)
    if found is not None:
        if ahead.advance(offset, length):
            ahead.extend()
        return found
    ahead.begin(offset, length)
    parts = []
    while length:
        part = bytes(await ahead.fetch(offset, length))
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
        ahead.moved(offset)
    return b"".join(parts)


def play(scene: Callable[[SlowFile, ReadAhead], Awaitable[None]], limit: int = MIB, budget: int = 64 * MIB) -> None:
    async def run() -> None:
        file = SlowFile()
        await scene(file, ReadAhead(file, limit, ReadAheadBudget(budget)))

    run_virtual(run())


@pytest.mark.parametrize("size", [1000, 64 * KIB, 300_000, 3 * MIB])
def test_a_stream_is_read_in_time_and_whole(size: int) -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        got = bytearray()
        while part := await take(ahead, len(got), size):
            got += part
            assert ahead.held_bytes <= 2 * MIB
        assert got == CONTENT
        asked = sorted(file.reads)
        assert sum(length for _, length in asked) == len(CONTENT), "nothing is read twice"
        assert size >= MIB or file.most_running > 1, "several requests are in flight"

    play(scene)


def test_a_reader_that_is_served_from_memory_needs_no_loop() -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        assert await take(ahead, 0, 10) == CONTENT[:10]
        asked = len(file.reads)
        for number in range(1, 3000):
            assert ahead.get(number * 10, 10) == CONTENT[number * 10 : number * 10 + 10]
            assert not ahead.advance(number * 10, 10)
        assert len(file.reads) == asked
        assert ahead.advance(30_000, 10_000), "half of the window is used up"
        assert not ahead.advance(40_000, 10), "the loop is told once"

    play(scene)


def test_a_seek_drops_what_was_read_ahead_and_reads_only_its_own_bytes() -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        for number in range(100):
            await take(ahead, number * KIB, KIB)
        assert ahead.held_bytes
        file.reads.clear()
        assert await take(ahead, 5 * MIB, 100) == CONTENT[5 * MIB : 5 * MIB + 100]
        assert file.reads == [(5 * MIB, 100)] and not ahead.held_bytes

    play(scene)


def test_what_is_read_ahead_of_all_files_together_is_bounded() -> None:
    async def run() -> None:
        file, budget = SlowFile(), ReadAheadBudget(MIB)
        readers = [ReadAhead(file, MIB, budget) for _ in range(10)]
        for number in range(200):
            parts = await asyncio.gather(*(take(ahead, number * 10 * KIB, 10 * KIB) for ahead in readers))
            assert set(parts) == {CONTENT[number * 10 * KIB : (number + 1) * 10 * KIB]}
            assert sum(ahead.held_bytes for ahead in readers) <= MIB and budget.used_bytes <= MIB
        del readers
        await asyncio.sleep(1)
        assert budget.used_bytes == 0, "freed memory is given back"

    run_virtual(run())


def test_a_piece_for_which_there_is_no_memory_gives_its_share_back() -> None:
    """After a few of them the connection read nothing ahead any more."""
    size = 1 << 62
    budget = ReadAheadBudget(size)
    assert budget.try_take(size)
    with pytest.raises(MemoryError):
        _Piece(0, size, budget)
    gc.collect()
    assert budget.used_bytes == 0


def test_a_piece_that_could_not_be_read_is_read_again_by_the_reader() -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        await take(ahead, 0, 10)
        file.fails = True
        await take(ahead, 10, 50 * KIB)
        await asyncio.sleep(1)
        with pytest.raises(Unavailable):
            await take(ahead, 10 + 50 * KIB, 100 * KIB)
        file.fails = False
        assert await take(ahead, 10 + 50 * KIB, 100 * KIB) == CONTENT[10 + 50 * KIB : 10 + 150 * KIB]

    play(scene)


def test_a_reader_that_stops_waiting_leaves_everything_in_order() -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        offset = 0
        while offset < 2 * MIB:
            reading = asyncio.create_task(take(ahead, offset, 100 * KIB))
            await asyncio.sleep(0.003)
            if not reading.done():
                await cancel_and_wait(reading)
            assert await take(ahead, offset, 100 * KIB) == CONTENT[offset : offset + 100 * KIB]
            offset += 100 * KIB

    play(scene)


def test_a_file_that_becomes_shorter_ends_there() -> None:
    async def scene(file: SlowFile, ahead: ReadAhead) -> None:
        await take(ahead, 0, 10)
        file.content = CONTENT[: 100 * KIB]  # another client has truncated it
        got = bytearray(CONTENT[:10])
        while part := await take(ahead, len(got), 10 * KIB):
            got += part
        assert got == CONTENT[: 100 * KIB]

    play(scene)


def test_lines_are_found_in_memory() -> None:
    async def run() -> None:
        file = SlowFile(b"one\ntwo\n" + b"x" * 200 * KIB + b"\nend")
        ahead = ReadAhead(file, MIB, ReadAheadBudget(MIB))
        assert ahead.line_here(0, -1) is None
        await take(ahead, 0, 1)
        assert ahead.line_here(0, -1) == b"one\n" and ahead.line_here(4, -1) == b"two\n"
        assert ahead.line_here(0, 2) == b"on" and ahead.line_here(0, 4) == ahead.line_here(0, 100) == b"one\n"
        assert ahead.line_here(8, -1) is None, "its end is not there yet"
        assert ahead.line_here(8, 5) == b"xxxxx"

    run_virtual(run())
