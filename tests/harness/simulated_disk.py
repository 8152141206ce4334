"""A simulated disk for tests of the modules that use one."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from threefs_storage.engine.engine import ChunkEngine
from threefs_storage.engine.engine_settings import EngineSettings

from tests.harness.seeded_random import SeededRandom
from tests.harness.simulated.disk import DISK_BYTES, SimDisk
from tests.harness.simulated.loop import SimLoop
from tests.harness.simulated.record_rows import Rows
from tests.harness.simulated.record_table import SimTable, open_table


def simulate(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on a loop with virtual time."""
    loop = SimLoop()
    loop.run(main)
    assert not loop.failures
    loop.discard()


def new_disk(capacity_bytes: int = DISK_BYTES) -> SimDisk:
    """To be called within `simulate`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return SimDisk(loop, SeededRandom(1), capacity_bytes=capacity_bytes)


def new_table() -> SimTable:
    """Of a disk and a loop of its own: for what needs no waiting."""
    return SimTable(SimDisk(SimLoop(), SeededRandom(1)), Rows())


async def engine_on(disk: SimDisk, directory: Path = Path("/t"), settings: EngineSettings | None = None) -> ChunkEngine:
    return await ChunkEngine.open(
        directory, disk, settings, random=disk.random, open_table=lambda path: open_table(disk, path)
    )
