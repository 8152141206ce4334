import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from threefs_client.async_filesystem import AsyncFileSystem
from threefs_client.data.dirty_extents import DirtyExtents
from threefs_client.data.handles import Handle
from threefs_client.data.write_behind import FLUSH_PIECES, MAX_PIECES, WriteBehind
from threefs_client.data.write_budget import WriteBudget

from tests.harness.memory_cluster import MemoryFiles
from tests.harness.virtual_time import run_virtual
from threefs.background import cancel_and_wait
from threefs.errors import DeadlineExceeded, LockLost, NoSpace

CHUNK = 64 << 10
MAX = 4 * CHUNK


def play(
    scene: Callable[[MemoryFiles, WriteBehind], Awaitable[None]], budget: int = 64 << 20, **options: Any
) -> MemoryFiles:
    files = MemoryFiles(CHUNK)
    options.setdefault("max_unsent_bytes", MAX)

    async def run() -> None:
        file = await AsyncFileSystem(files.context).open("/a", "w+b")
        await scene(files, WriteBehind(file.handle, WriteBudget(budget), **options))

    run_virtual(run())
    return files


def writes(files: MemoryFiles) -> list[Any]:
    return [write for _, name, r in files.storage.calls if name == "Write" for write in r.writes]  # type: ignore[attr-defined]


async def content(files: MemoryFiles, handle: Handle) -> bytes:
    await handle.sync()
    return await AsyncFileSystem(files.context).read_file("/a")


def test_full_chunks_are_sent_in_the_background_and_once() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 0.01
        data = bytes(range(256)) * (3 * CHUNK // 256)
        for number in range(30):
            await behind.add(number * len(data) // 2, memoryview(data)[: len(data) // 2])
        assert writes(files), "nobody has waited for them"
        assert all(write.length == CHUNK for write in writes(files))
        await behind.flush()
        assert len(writes(files)) == 45 and behind.is_idle
        assert await content(files, behind.handle) == data * 15

    play(scene)


def test_files_that_share_little_memory_all_get_their_turn() -> None:
    """Those that were let in write no more. Nobody but them can make room for the others."""

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 0.01
        budget, client = WriteBudget(2 * CHUNK), AsyncFileSystem(files.context)
        opened = [await client.open(f"/{number}", "w+b") for number in range(12)]
        behinds = [WriteBehind(file.handle, budget, max_unsent_bytes=MAX) for file in opened]
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.add(0, bytes(CHUNK // 2)) for each in behinds))

    play(scene)


def test_chunks_that_writers_fill_in_turns_are_sent_once() -> None:
    record, writers, rounds = 4700, 4, 300

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        random = Random(11)
        files.storage.pause_s = lambda: 0.01
        left = {writer: list(range(rounds)) for writer in range(writers)}
        while left:  # each writer goes forward, no two at the same pace
            writer = random.choice(list(left))
            place = left[writer].pop(0) * writers + writer
            await behind.add(place * record, memoryview(bytes([place % 255 + 1]) * record))
            left = {number: places for number, places in left.items() if places}
        await behind.flush()
        sent = [(write.chunk.index, write.length) for write in writes(files)]
        end = rounds * writers * record
        assert sorted(sent)[:-1] == [(number, CHUNK) for number in range(end // CHUNK)]
        stored = await content(files, behind.handle)
        assert stored == b"".join(bytes([place % 255 + 1]) * record for place in range(rounds * writers))

    play(scene, max_unsent_bytes=64 * CHUNK)


@pytest.mark.parametrize("size", [1000, CHUNK, 3 * CHUNK + 7])
def test_a_slow_cluster_does_not_make_it_hold_more(size: int) -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 1.0
        most = 0
        for number in range(40 * MAX // size):
            await behind.add(number * size, memoryview(bytes(size)))
            most = max(most, behind.held_bytes)
        assert MAX < most <= 2 * MAX, "half is sent while half gathers"
        await behind.flush()

    play(scene)


def test_all_files_together_hold_no_more_than_the_budget() -> None:
    async def run() -> None:
        files = MemoryFiles(CHUNK)
        files.storage.pause_s = lambda: 1.0
        fs, budget = AsyncFileSystem(files.context), WriteBudget(6 * CHUNK)
        handles = [(await fs.open(f"/{number}", "wb")).handle for number in range(8)]
        behinds = [WriteBehind(handle, budget, max_unsent_bytes=MAX) for handle in handles]
        most = 0

        async def write(behind: WriteBehind) -> None:
            nonlocal most
            for number in range(30):
                await behind.add(number * CHUNK // 2, memoryview(bytes(CHUNK // 2)))  # half chunks: all must give way
                most = max(most, sum(each.held_bytes for each in behinds))

        await asyncio.gather(*map(write, behinds))
        assert 3 * CHUNK < most <= 6 * CHUNK
        await asyncio.gather(*(behind.flush() for behind in behinds))
        assert all(behind.is_idle for behind in behinds)
        assert budget.try_take(6 * CHUNK), "everything was given back"

    run_virtual(run())


def test_bytes_that_could_not_be_sent_are_kept_below_later_ones() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        await behind.add(0, memoryview(b"first"))
        files.storage.before = [lambda *_: NoSpace("full")]
        before = behind.errors.current
        behind.start_flush()
        await asyncio.sleep(1)
        assert isinstance(behind.errors.check(before), NoSpace) and behind.unsent_bytes == 5
        await behind.add(2, memoryview(b"lat"))
        await behind.flush()
        assert await content(files, behind.handle) == b"filat"

    play(scene, keeps_failed=True)


def test_bytes_that_are_kept_are_bounded_and_a_write_says_why_there_is_no_room() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.before = [lambda *_: NoSpace("full")] * 10_000
        failures = 0
        for number in range(60):
            try:
                await behind.add(number * CHUNK, memoryview(bytes(CHUNK)))
            except NoSpace:
                failures += 1
            assert behind.held_bytes <= 2 * MAX
        assert failures == 60 - behind.held_bytes // CHUNK

    play(scene, keeps_failed=True)


@pytest.mark.parametrize("keeps", [True, False])
def test_bytes_that_there_is_no_memory_to_send_are_kept_or_recorded(
    monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """They were gone, and the next flush said that everything is stored."""

    def fail(*_: object) -> None:
        raise MemoryError

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        for number in reversed(range(8)):
            await behind.add(number * CHUNK // 8, memoryview(bytes([number + 1]) * (CHUNK // 8)))
        with monkeypatch.context() as patched:
            patched.setattr(DirtyExtents, "drain", fail)
            with pytest.raises(MemoryError):
                await behind.flush()
        assert behind.unsent_bytes == behind.end == (CHUNK if keeps else 0) and behind.is_idle != keeps
        await behind.flush()
        assert behind.is_idle and isinstance(behind.errors.check(0), MemoryError)
        expected = b"".join(bytes([number + 1]) * (CHUNK // 8) for number in range(8)) if keeps else b""
        assert await content(files, behind.handle) == expected
        assert behind.try_take_budget(CHUNK), "everything was given back"
        behind.give_budget(CHUNK)

    play(scene, budget=CHUNK, keeps_failed=keeps)


def test_a_write_does_not_wait_for_the_room_of_what_there_is_no_memory_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        with monkeypatch.context() as patched:
            for drain in ("drain", "drain_ready"):
                patched.setattr(DirtyExtents, drain, fail)
            assert behind.try_add(0, memoryview(bytes(MAX)))
            async with asyncio.timeout(1000):
                with pytest.raises(MemoryError):
                    await behind.add(MAX, memoryview(b"more"))
        await behind.add(MAX, memoryview(b"more"))
        await behind.flush()
        assert await content(files, behind.handle) == bytes(MAX) + b"more"

    play(scene, keeps_failed=True)


def test_bytes_that_are_not_kept_are_lost_and_recorded() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        lost = []
        behind.on_lost = lambda: lost.append(1)
        files.storage.before = [lambda *_: NoSpace("full")]
        await behind.add(0, memoryview(b"first"))
        with pytest.raises(NoSpace):
            await behind.flush()
        assert behind.is_idle and lost == [1]

    play(scene)


def test_a_write_that_stops_waiting_for_room_is_not_kept() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 1.0
        number = 0
        for _ in range(2):  # what is in flight, and what gathers
            while behind.try_add(number * CHUNK, memoryview(bytes([number + 1]) * CHUNK)):
                number += 1
            await asyncio.sleep(0.1)
        waiting = asyncio.create_task(behind.add(number * CHUNK, memoryview(bytes(CHUNK))))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await cancel_and_wait(waiting)
        await behind.flush()
        assert len(await content(files, behind.handle)) == number * CHUNK

    play(scene)


def test_a_cancelled_wait_for_a_flush_does_not_stop_it() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 1.0
        await behind.add(0, memoryview(b"data"))
        flush = asyncio.create_task(behind.flush())
        await asyncio.sleep(0.1)
        await cancel_and_wait(flush)
        await asyncio.sleep(5)
        assert behind.is_idle and await content(files, behind.handle) == b"data"

    play(scene)


def test_discarded_bytes_are_not_sent_and_a_write_that_waits_fails() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 1.0
        number = 0
        for _ in range(2):
            while behind.try_add(number * CHUNK, memoryview(bytes(CHUNK))):
                number += 1
            await asyncio.sleep(0.1)
        waiting = asyncio.create_task(behind.add(0, memoryview(bytes(MAX))))
        await asyncio.sleep(0.1)
        behind.discard(LockLost("gone"))
        with pytest.raises(LockLost):
            await waiting
        await behind.flush()
        assert behind.is_idle

    play(scene)


def test_many_small_extents_are_sent_soon() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        for number in range(FLUSH_PIECES):
            assert not behind.flush_has_begun
            await behind.add(2 * number, memoryview(b"x"))
        assert behind.flush_has_begun

    play(scene)


def test_pieces_are_bounded_and_more_of_a_chunk_than_fit_into_one_deadline_arrive() -> None:
    """One byte in sixteen: none can be joined, so each is a version of its chunk."""

    def data(number: int) -> bytes:
        return bytes([number % 255 + 1])

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        timeout_s = files.options.timeout_s
        files.storage.pause_s = lambda: timeout_s / FLUSH_PIECES  # there and back: half of them fit into one
        count = 0
        while behind.try_add(16 * count, data(count)):
            count += 1
            assert count <= MAX_PIECES, "each takes memory besides its byte"
        assert 16 * count >= 2 * CHUNK
        last = count + 100
        for number in range(count, last):  # they wait for room, and get it
            await behind.add(16 * number, data(number))
            assert behind._extents.pieces <= MAX_PIECES
        await behind.flush()
        stored = await content(files, behind.handle)
        assert stored[::16] == b"".join(data(number) for number in range(last))
        assert behind.is_idle and behind.errors.check(0) is None

    play(scene)


def test_if_one_part_fails_the_bytes_of_the_others_arrive_and_only_its_own_are_sent_again() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        for number in range(FLUSH_PIECES // 2):
            await behind.add(16 * number, b"x")
        files.storage.before = [lambda *_: NoSpace("full")]
        with pytest.raises(NoSpace):
            await behind.flush()
        assert 0 < behind.unsent_bytes < FLUSH_PIECES // 2
        await behind.flush()
        assert (await content(files, behind.handle))[::16] == b"x" * (FLUSH_PIECES // 2)

    play(scene, keeps_failed=True)


@pytest.mark.parametrize(("error", "parts"), [(NoSpace("full"), 4), (DeadlineExceeded("slow"), 2)])
def test_only_an_error_that_took_a_deadline_makes_one_part_of_the_rest(error: Exception, parts: int) -> None:
    """Else the bytes for a chain that is slow, but works, would be given up because another one is full."""

    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        for number in range(FLUSH_PIECES // 2):
            await behind.add(16 * number, b"x")
        sizes: list[int] = []
        send = behind._send_part

        async def sent(extents: list[Any]) -> None:
            sizes.append(len(extents))
            if len(sizes) == 1:
                raise error
            await send(extents)

        behind._send_part = sent  # type: ignore[method-assign]
        with pytest.raises(type(error)):
            await behind.flush()
        assert len(sizes) == parts and sum(sizes) == FLUSH_PIECES // 2

    play(scene, keeps_failed=True)


def test_bytes_of_a_lock_that_was_lost_during_a_flush_are_not_sent() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        files.storage.pause_s = lambda: 0.001
        for number in range(FLUSH_PIECES):
            await behind.add(16 * number, b"x")
        flush = asyncio.create_task(behind.flush())
        await asyncio.sleep(0.1)
        behind.discard(LockLost("gone"))
        with pytest.raises(LockLost):
            await flush
        assert behind.is_idle and 0 < len(writes(files)) < FLUSH_PIECES // 2

    play(scene)


def test_writes_of_the_same_bytes_arrive_in_their_order() -> None:
    async def scene(files: MemoryFiles, behind: WriteBehind) -> None:
        random = Random(7)
        files.storage.pause_s = lambda: random.uniform(0.0, 0.1)
        model = bytearray(4 * CHUNK)
        for number in range(300):
            offset, size = random.randrange(3 * CHUNK), random.randrange(1, CHUNK)
            data = bytes([number % 255 + 1]) * size
            await behind.add(offset, memoryview(data))
            model[offset : offset + size] = data
            if random.random() < 0.2:
                behind.start_flush()
        await behind.flush()
        stored = await content(files, behind.handle)
        assert stored == model[: len(stored)] and not any(model[len(stored) :])

    play(scene)
