"""One client process of the incast benchmark. It reads one row of each storage service at a time, and waits for all:
the step of a training job.

It prints `ready`, begins with a line on its standard input, and prints what it has measured as one line of JSON.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop
from threefs_client import connect_async
from threefs_client.async_file import AsyncFile
from threefs_client.async_filesystem import AsyncFileSystem

from benchmarks.testbed import peak_bytes
from threefs.errors import DeadlineExceeded


def _received(fs: AsyncFileSystem) -> int:
    """Bytes that have come from storage services, with 0.05 % of headers."""
    connections = [connection for live in fs.context.peers._live for connection in live.values()]
    return sum(connection._stream.received_bytes for connection in connections)


@dataclass
class Batches:
    """How long each took. Some fail: without request-to-send a connection may get nothing through for a minute."""

    took: list[float] = field(default_factory=list)
    failed: int = 0


async def read(fs: AsyncFileSystem, file: AsyncFile, rows: int, row_bytes: int, ends_at: float) -> Batches:
    """Batches until then."""
    batches = Batches()
    plan = [(file, number * row_bytes, row_bytes) for number in range(rows)]
    while (began := time.monotonic()) < ends_at:
        try:
            await fs.read_batch(plan)
        except DeadlineExceeded:
            batches.failed += 1
        batches.took.append(time.monotonic() - began)
    return batches


async def main(spec: dict[str, Any]) -> None:
    async with await connect_async(spec["address"], **spec["options"]) as fs:
        file = await fs.open(spec["path"], "rb")
        await read(fs, file, spec["rows"], spec["row_bytes"], time.monotonic() + 0.01)  # all connections are there
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        begin = time.monotonic()
        loading = asyncio.ensure_future(
            read(fs, file, spec["rows"], spec["row_bytes"], begin + spec["warm_s"] + spec["seconds"])
        )
        await asyncio.sleep(spec["warm_s"])
        before, began, cpu = _received(fs), time.monotonic(), os.times()
        await asyncio.sleep(spec["seconds"])
        total, elapsed, after = _received(fs) - before, time.monotonic() - began, os.times()
        batches = await loading
        took = batches.took
        grants = fs.context.grants
        result = {
            "bytes_per_s": total / elapsed,
            "bytes": total,
            "cpu_s": after.user + after.system - cpu.user - cpu.system,
            "batches": len(took),
            "failed": batches.failed,
            "longest_batch_s": max(took),
            "median_batch_s": sorted(took)[len(took) // 2],
            "grants": None if grants is None else asdict(grants.counters),
            "stalls": 0 if grants is None else grants.limit.stalls,
            "limit": 0 if grants is None else grants._slots.limit.value,
            "peak_bytes": peak_bytes(os.getpid()),
        }
        print(json.dumps(result), flush=True)
        await file.close()


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
