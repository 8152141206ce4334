import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from threefs_storage.engine.committer import Committer
from threefs_storage.engine.records import Record, Version
from threefs_storage.engine.store import RecordStore

from tests.sim.content import Content
from tests.sim.disk import SimDisk, SimFile
from tests.sim.table import open_table
from tests.support.simulated_disk import new_disk, simulate
from threefs.env.disk import Write
from threefs.errors import DiskFailed
from threefs.ids import ChunkId


class CountingFile(SimFile):
    syncs = 0
    fails = False

    async def sync(self, writes: Sequence[Write] = ()) -> None:
        self.syncs += 1
        await super().sync(writes)
        if self.fails:
            raise DiskFailed("the disk is broken")


def record(number: int) -> Record:
    return Record(pending=Version(number, 1, 0, 0, None, 4096, b""))


async def fixture() -> tuple[Committer, RecordStore, SimDisk, list[CountingFile]]:
    disk = new_disk()
    files = [CountingFile(disk, Content(disk.free_bytes)) for _ in range(2)]
    for number, file in enumerate(files):
        disk.files[Path(f"/{number}")] = file.content
        await file.allocate(0, 1 << 20)
    store = RecordStore(await open_table(disk, Path("/records")), 100)
    return Committer(store), store, disk, files


def test_a_batch_shares_one_sync_per_file_and_is_durable() -> None:
    async def main() -> None:
        committer, store, disk, files = await fixture()
        await asyncio.gather(
            *(
                committer.commit(ChunkId(1, n), record(n), files[n % 2], [(n * 100, [b"a" * 50, b"b" * 50])])
                for n in range(10)
            )
        )
        assert [file.syncs for file in files] == [1, 1]
        assert [store.get(ChunkId(1, n)) for n in range(10)] == [record(n) for n in range(10)]
        disk.cut_power()
        into = memoryview(bytearray(100))
        for n in range(10):
            await files[n % 2].read(n * 100, into)
            assert bytes(into) == b"a" * 50 + b"b" * 50

    simulate(main())


def test_no_record_is_written_before_its_data_is_durable() -> None:
    async def main() -> None:
        committer, store, _, files = await fixture()
        files[0].fails = True
        results = await asyncio.gather(
            committer.commit(ChunkId(1, 0), record(0), files[0], []),
            committer.commit(ChunkId(1, 1), record(1), files[1], []),
            committer.commit(ChunkId(1, 2), record(2), None, []),
            return_exceptions=True,
        )
        assert isinstance(results[0], DiskFailed)
        assert not any(results[1:])
        assert store.get(ChunkId(1, 0)) is None
        assert store.get(ChunkId(1, 1)) == record(1)
        assert store.get(ChunkId(1, 2)) == record(2)

    simulate(main())


def test_when_the_table_fails_every_caller_is_told() -> None:
    async def main() -> None:
        committer, _, disk, _ = await fixture()
        disk.failing.add("sync")
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await committer.commit(ChunkId(1, 0), record(0), None, [])

    simulate(main())
