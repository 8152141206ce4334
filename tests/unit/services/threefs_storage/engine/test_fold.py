import asyncio
import dataclasses
import os
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record
from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine_settings import EngineSettings
from threefs_storage.engine.overlay import OverlayLimits

from tests.harness.chunk_engine import change, opened, put, read_all, read_range, update
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)
SMALL = EngineSettings(overlay=OverlayLimits(deferred_bytes=5000, inline_bytes=1000, extents=4, stored_bytes=9000))


async def test_beyond_a_bound_the_overlay_is_folded(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        first = await put(engine, CHUNK, bytes(100_000))
        for number in range(4):
            assert (await put(engine, CHUNK, b"x", 1000 * number)).block == first.block
        fifth = await put(engine, CHUNK, b"x", 4000)
        assert fifth.overlay is not None and fifth.overlay.count == 1 and fifth.block == first.block
        for number in range(9):
            second = await put(engine, CHUNK, b"y" * 1000, 1000 * number)  # adjacent, but not one extent
        assert second.overlay is not None and second.overlay.count <= 4
        large = await put(engine, CHUNK, b"z" * 5001, 7)
        assert large.overlay is None
        assert engine._store.blob_bytes == 0
        assert engine._files.used_bytes() - engine._files._freed_bytes() == 1 << 17


async def test_appends_that_were_deferred_are_folded_into_their_block(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    async with opened(tmp_path, SMALL) as engine:
        first = await put(engine, CHUNK, data[:140_000])
        for at in range(140_000, 160_000, 4000):
            version = await put(engine, CHUNK, data[at : at + 4000], at)
            assert version.block == first.block
            assert await read_all(engine, CHUNK) == data[: at + 4000]
        assert await engine.fold(CHUNK)
        version = await put(engine, CHUNK, data[160_000:260_000], 160_000)
        assert version.block == first.block and version.overlay is None
        await put(engine, CHUNK, b"x" * 100, 50)
        assert await read_all(engine, CHUNK) == data[:50] + b"x" * 100 + data[150:260_000]
        appended = await put(engine, CHUNK, data[200_000:202_000], 260_000)
        appended = await put(engine, CHUNK, b"z" * 2000, 262_000 + 72)
        assert appended.overlay is not None and appended.overlay.count <= 4
    async with opened(tmp_path, SMALL) as engine:
        content = data[:50] + b"x" * 100 + data[150:260_000] + data[200_000:202_000] + bytes(72) + b"z" * 2000
        assert await read_all(engine, CHUNK) == content
        assert await engine.fold(CHUNK)
        assert await read_all(engine, CHUNK) == content


async def test_a_reader_of_the_version_before_is_not_disturbed(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        await put(engine, CHUNK, b"a" * 100_000)
        old = await put(engine, CHUNK, b"b" * 100, 5000)
        into = memoryview(bytearray(100_000))
        reading = asyncio.ensure_future(engine.read_cold(old, 0, into, past_cache=True))
        await asyncio.sleep(0)
        for letter in (b"c", b"d", b"e"):
            await put(engine, CHUNK, letter * 200, 4950)
        await engine.fold(CHUNK)
        assert await reading == old.checksum


async def test_a_chunk_with_a_pending_version_is_not_folded(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        await put(engine, CHUNK, b"a" * 100_000)
        await put(engine, CHUNK, b"b" * 100, 5000)
        wanted = update(engine, CHUNK, Kind.WRITE, b"c", offset=3)
        pending = await engine.stage(CHUNK, wanted, payload=b"c")
        assert not await engine.fold(CHUNK)
        assert (engine.record(CHUNK) or Record()).pending == pending
        engine.commit(CHUNK, pending.version, 1)
        assert await engine.fold(CHUNK)
        assert await read_all(engine, CHUNK) == b"aaac" + b"a" * 4996 + b"b" * 100 + b"a" * 94_900


async def test_a_fold_does_not_write_under_a_reader(tmp_path: Path) -> None:
    async with opened(tmp_path, SMALL) as engine:
        first = await put(engine, CHUNK, b"a" * 100_000)
        engine.pin(first)
        second = await put(engine, CHUNK, b"b" * 100, 5000)
        assert second.block == first.block
        assert await engine.fold(CHUNK)
        assert await read_range(engine, first, 0, 100_000) == b"a" * 100_000
        engine.unpin(first)
        third = await put(engine, CHUNK, b"c" * 100, 5000)
        assert await engine.fold(CHUNK)
        assert (engine.record(CHUNK) or Record()).blocks == {third.block}, "now in place"


async def test_a_change_of_a_predecessor_has_the_reserve_also_if_a_read_comes_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overlay is folded before it, in place. A read of the block begins before that is done, so the fold needs a
    new block: it found none, and the target left its chain as one without room."""
    async with opened(tmp_path, SMALL) as engine:
        await put(engine, CHUNK, bytes(100_000))
        for number in range(4):
            version = await put(engine, CHUNK, b"x", 1000 * number)
        engine.adopt(dataclasses.replace(SMALL, full_ratio=0.0))  # all of the disk is the reserve
        await engine._files.release_free_blocks(engine._store.durable)
        flush = engine._store.flush

        async def interrupted(number: int | None = None) -> None:
            monkeypatch.undo()
            engine.pin(version)
            await flush(number)

        monkeypatch.setattr(engine._store, "flush", interrupted)
        change = dataclasses.replace(update(engine, CHUNK, Kind.WRITE, b"y", offset=4000), admitted=True)
        await engine.stage(CHUNK, change, payload=b"y")
        engine.unpin(version)
        engine.commit(CHUNK, change.version, 1)
        content = await read_all(engine, CHUNK)
        assert content is not None and content[:4001] == (b"x" + bytes(999)) * 4 + b"y"


@pytest.mark.parametrize("how", ["cut", "overwritten in part"])
async def test_what_blobs_of_small_content_have_and_do_not_show_is_given_back(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as engine:
        data = os.urandom(16 << 10)
        await put(engine, CHUNK, data)
        if how == "cut":
            await change(engine, CHUNK, Kind.TRUNCATE, length=10)
        else:
            for begin in range(100, 3000, 100):
                await put(engine, CHUNK, data[begin:], begin)
        content = data[:10] if how == "cut" else data
        assert await read_all(engine, CHUNK) == content and engine.space().used_bytes > len(content)
        assert list(engine.foldable) == [CHUNK] and await engine.fold(CHUNK)
        assert engine.space().used_bytes == len(content) and not engine.foldable
        assert await read_all(engine, CHUNK) == content
        await put(engine, CHUNK, b"x", 3)
        assert not engine.foldable, "a little more is not worth a fold"
