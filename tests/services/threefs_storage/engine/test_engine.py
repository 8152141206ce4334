import asyncio
from pathlib import Path

import pytest

from tests.support.chunk_engine import opened, put, read_all
from threefs.ids import ChunkId

CHUNK = ChunkId(7, 0)


@pytest.mark.parametrize("length", [1, 100, 4096, 65535, 65536, 100_000, 1 << 20, (1 << 20) - 5])
def test_what_was_written_is_read_back_after_reopening(tmp_path: Path, length: int) -> None:
    data = bytes(range(256)) * (length // 256) + bytes(range(length % 256))

    async def main() -> None:
        async with opened(tmp_path) as engine:
            await put(engine, CHUNK, data)
            assert await read_all(engine, CHUNK) == data
        async with opened(tmp_path) as engine:
            assert await read_all(engine, CHUNK) == data

    asyncio.run(main())
