import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from threefs_storage.engine.chunk_record import Record, Version
from threefs_storage.engine.group_commit import GroupCommit
from threefs_storage.engine.record_store import RecordStore

from tests.harness.simulated.content import Content
from tests.harness.simulated.disk import SimDisk, SimFile
from tests.harness.simulated.record_table import open_table
from tests.harness.simulated_disk import new_disk, simulate
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


class QuickFile(CountingFile):
    at_once = 0

    def sync_now(self, writes: Sequence[Write]) -> bool:
        self.at_once += 1
        if self.fails:
            raise DiskFailed("the disk is broken")
        for offset, parts in writes:
            self.content.write(offset, b"".join(parts))
        self.content.sync(self.content.number)
        return True


class SlowForLargeFile(QuickFile):
    """What was written before may be much."""

    def sync_now(self, writes: Sequence[Write]) -> bool:
        return bool(writes) and super().sync_now(writes)


def record(number: int) -> Record:
    return Record(pending=Version(number, 1, 0, 0, None, 4096, b""))


async def fixture(
    kind: type[CountingFile] = CountingFile,
) -> tuple[GroupCommit, RecordStore, SimDisk, list[CountingFile]]:
    disk = new_disk()
    files = [kind(disk, Content(disk.free_bytes)) for _ in range(2)]
    for number, file in enumerate(files):
        disk.files[Path(f"/{number}")] = file.content
        await file.allocate(0, 1 << 20)
    store = RecordStore(await open_table(disk, Path("/records")), 100)
    return GroupCommit(store), store, disk, files


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


def test_commits_that_wait_and_those_that_have_ended_are_counted() -> None:
    async def main() -> None:
        committer, _, disk, files = await fixture()
        disk.hang()
        commits = [asyncio.ensure_future(committer.commit(ChunkId(1, n), record(n), files[0], [])) for n in range(2)]
        await asyncio.sleep(1.0)
        assert (committer.work.waiting, committer.work.ended) == (2, 0)
        disk.wake()
        await asyncio.gather(*commits)
        assert (committer.work.waiting, committer.work.ended) == (0, 2)
        files[0].fails = True
        with pytest.raises(DiskFailed):
            await committer.commit(ChunkId(1, 0), record(0), files[0], [])
        assert (committer.work.waiting, committer.work.ended) == (0, 3)

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


def test_when_the_table_fails_every_caller_gets_the_error() -> None:
    async def main() -> None:
        committer, _, disk, _ = await fixture()
        disk.failing.add("sync")
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await committer.commit(ChunkId(1, 0), record(0), None, [])

    simulate(main())


def test_a_single_writer_on_a_quick_disk_needs_no_task() -> None:
    async def main() -> None:
        committer, store, disk, [file, _] = await fixture(QuickFile)
        assert isinstance(file, QuickFile)
        for number in range(3):
            work = committer.commit(ChunkId(1, number), record(number), file, [(number, [b"a"])])
            waits = asyncio.ensure_future(work)
            await asyncio.sleep(0)
            assert store.get(ChunkId(1, number)) == record(number) and file.at_once == number + 1
            await waits
        assert file.syncs == 0
        disk.cut_power()
        into = memoryview(bytearray(3))
        await file.read(0, into)
        assert bytes(into) == b"aaa"

    simulate(main())


def test_concurrent_writers_share_a_sync_from_the_second_turn_on() -> None:
    async def main() -> None:
        committer, store, _, [file, _] = await fixture(QuickFile)
        assert isinstance(file, QuickFile)
        for turn, syncs in (0, 2), (1, 3), (2, 4):  # in the first one, the first has gone ahead
            chunks = [ChunkId(turn, number) for number in range(10)]
            commits = (committer.commit(chunk, record(1), file, [(0, [b"a"])]) for chunk in chunks)
            await asyncio.gather(*commits)
            assert file.at_once == syncs and all(store.get(chunk) == record(1) for chunk in chunks)
        await committer.commit(ChunkId(9, 9), record(1), file, [(0, [b"a"])])
        await committer.commit(ChunkId(9, 8), record(1), file, [(0, [b"a"])])
        assert file.at_once == 6

    simulate(main())


def test_no_record_is_written_when_a_quick_disk_fails() -> None:
    async def main() -> None:
        committer, store, _, [file, _] = await fixture(QuickFile)
        file.fails = True
        for number in range(2):
            with pytest.raises(DiskFailed):
                await committer.commit(ChunkId(1, number), record(number), file, [(0, [b"a"])])
            assert store.get(ChunkId(1, number)) is None

    simulate(main())


def test_a_writer_that_comes_during_a_sync_waits_for_it() -> None:
    async def main() -> None:
        committer, store, _, [file, _] = await fixture(SlowForLargeFile)
        assert isinstance(file, SlowForLargeFile)
        large = asyncio.ensure_future(committer.commit(ChunkId(1, 0), record(0), file, []))
        while not file.syncs:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        small = asyncio.ensure_future(committer.commit(ChunkId(1, 1), record(1), file, [(0, [b"a"])]))
        await asyncio.sleep(0)
        assert not large.done() and file.at_once == 0 and store.get(ChunkId(1, 1)) is None
        await asyncio.gather(large, small)
        assert file.at_once == 1 and store.get(ChunkId(1, 1)) == record(1)

    simulate(main())
