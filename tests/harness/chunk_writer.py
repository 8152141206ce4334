"""A process that changes chunks as fast as it can and names on stdout what is durable. Run as `python FILE DIRECTORY`.

Each task has a chunk of its own, whose content at a version follows from the task and the version alone.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from threefs_storage.engine.content_plan import Kind
from threefs_storage.engine.engine import ChunkEngine

from tests.harness.chunk_engine import opened, update
from tests.harness.chunk_machine import expected
from threefs.ids import ChunkId

TASKS = 8
MAX_BYTES = 200_000


def chunk_of(task: int) -> ChunkId:
    return ChunkId(1, task)


def step(task: int, version: int, old: bytes) -> tuple[Kind, int, int, bytes]:
    """Kind, offset, length and payload of the change that makes this version."""
    source = random.Random(task << 32 | version)
    kind = source.choice([Kind.WRITE, Kind.WRITE, Kind.WRITE, Kind.TRUNCATE])
    if kind == Kind.TRUNCATE:
        return kind, 0, source.randrange(MAX_BYTES), b""
    offset = source.choice([0, len(old), source.randrange(MAX_BYTES)])
    payload = source.randbytes(source.choice([10, 5000, MAX_BYTES]))
    return kind, offset, len(payload), payload


def content(task: int, version: int) -> bytes:
    data = b""
    for number in range(1, version + 1):
        data = expected(data, *step(task, number, data)) or b""
    return data


async def run(engine: ChunkEngine, task: int) -> None:
    chunk = chunk_of(task)
    record = engine.record(chunk)
    if record is not None and record.pending is not None:
        engine.commit(chunk, record.pending.version, 1)
        record = engine.record(chunk)
    version = record.committed.version if record is not None and record.committed is not None else 0
    data = content(task, version)
    while True:
        version += 1
        kind, offset, length, payload = step(task, version, data)
        wanted = update(engine, chunk, kind, payload, offset=offset, length=length)
        await engine.stage(chunk, wanted, payload=payload)
        os.write(1, b"%d %d\n" % (task, version))
        engine.commit(chunk, version, 1)
        data = expected(data, kind, offset, length, payload) or b""


async def main() -> None:
    async with opened(Path(sys.argv[1])) as engine:
        await asyncio.gather(*(run(engine, task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main())
