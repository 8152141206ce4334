"""A process that commits as fast as it can and names on stdout what was acknowledged. Run as `python FILE DIRECTORY`,
and with one more argument to let it sync on its event loop.

Each of its tasks counts up its own counter and leaves one key per count, in the same transaction.
"""

import asyncio
import os
import sys
from pathlib import Path

from threefs.env.sync_policy import SyncPolicy
from threefs.kv import retry
from threefs.kv.engine_api import Transaction
from threefs.kv.rocks import RocksEngine

TASKS = 16


async def count(engine: RocksEngine, task: int) -> None:
    async def step(tx: Transaction) -> int:
        number = int(await tx.get(b"counter/%d" % task) or 0) + 1
        tx.set(b"counter/%d" % task, b"%d" % number)
        tx.set(b"count/%d/%d" % (task, number), b"v" * 500)
        return number

    while True:
        number = await retry.run(engine, step)
        os.write(1, b"%d %d\n" % (task, number))


async def main() -> None:
    engine = await RocksEngine.open(Path(sys.argv[1]), sync_policy=SyncPolicy() if sys.argv[2:] else None)
    await asyncio.gather(*(count(engine, task) for task in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main())
