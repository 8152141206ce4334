"""Removed chunks of a real engine give their room back to the host."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from threefs_storage.engine.content_plan import Kind
from threefs_storage.scheduling.space_release import INTERVAL_S, SpaceRelease

from tests.harness.chunk_engine import change, opened, put, read_all
from tests.harness.clocks import SteppedClock
from threefs.ids import ChunkId

MIB = 1 << 20


def on_the_host(directory: Path) -> int:
    """Bytes that the files with chunks take up."""
    return sum(os.stat(file).st_blocks * 512 for file in directory.rglob("*.blocks"))


async def test_removed_chunks_go_back_to_the_host_and_count_as_free_all_the_time(tmp_path: Path) -> None:
    clock = SteppedClock(0.0, sleepers_wait=True)
    async with opened(tmp_path) as engine:
        target: Any = SimpleNamespace(engine=engine, target_id=1)
        chunks = [ChunkId(7, index) for index in range(40)]
        for chunk in chunks:
            await put(engine, chunk, os.urandom(MIB))
        for chunk in chunks[4:]:
            await change(engine, chunk, Kind.REMOVE)
        before = on_the_host(tmp_path)
        assert before >= 40 * MIB
        release = SpaceRelease(clock=clock)
        release.start([target])
        await asyncio.sleep(0)
        async with asyncio.timeout(50):  # its disk has threads of its own, which may be slow
            while on_the_host(tmp_path) >= 9 * MIB:  # four chunks, as many for the next ones, what a file system adds
                await clock.pass_by(INTERVAL_S)
                await asyncio.sleep(0.02)
        assert len(clock.sleeps) <= 3, "it took two intervals"
        await release.stop()
        space = engine.space()
        assert space.used_bytes == 4 * MIB and space.reusable_bytes == 4 * MIB
        for chunk in chunks[:4]:
            assert len(await read_all(engine, chunk) or b"") == MIB
        for chunk in chunks[4:]:
            await put(engine, chunk, b"again" * 1000)
            assert await read_all(engine, chunk) == b"again" * 1000
