"""A whole check of the shared cluster."""

import asyncio

from threefs_client import AsyncFileSystem, FileSystem, connect_async
from threefs_fsck import check

from tests.harness.cluster import LocalCluster
from threefs.ids import InodeId, TableId
from threefs.layout import FileLayout


def test_a_cluster_in_use_is_clean(cluster: LocalCluster, fs: FileSystem) -> None:
    fs.mkdir("/checked/below", parents=True)
    fs.write_file("/checked/file", b"x" * 100_000)
    fs.hard_link("/checked/file", "/checked/below/again")
    fs.write_file("/checked/removed", b"y")
    fs.remove("/checked/removed")

    async def busy(other: AsyncFileSystem, stop: asyncio.Event) -> int:
        turn = 0
        while not stop.is_set():
            turn += 1
            await other.write_file(f"/checked/{turn}", b"z" * turn)
            await other.rename(f"/checked/{turn}", f"/checked/below/{turn}")
            await other.hard_link(f"/checked/below/{turn}", f"/checked/{turn}")
            await other.remove(f"/checked/below/{turn}")
        return turn

    async def scene() -> None:
        seen: set[str] = set()
        async with await connect_async(cluster.address) as one, await connect_async(cluster.address) as other:
            stop = asyncio.Event()
            load = asyncio.create_task(busy(other, stop))
            for _ in range(3):
                report = await check(one, repair=True, progress=lambda title, rows: seen.add(title))
                assert [finding.detail for finding in report.findings] == []
                assert report.exit_code == 0 and report.complete
                assert report.entries >= 4 and report.inodes >= 4
            stop.set()
            assert await load > 0
        assert {"entries", "inodes", "removals", "chunks"} <= seen

    asyncio.run(scene())


def test_orphaned_chunks_on_real_targets(cluster: LocalCluster, fs: FileSystem) -> None:
    async def scene() -> None:
        async with await connect_async(cluster.address) as one:
            layout = FileLayout(64 << 10, TableId(1), 2)
            for number in range(5):
                await one.context.chunks.write(layout, InodeId(1 << 50), number, 0, b"lost" * 999, timeout_s=30)
            found = await check(one)
            assert (found.kinds, found.exit_code) == ({"orphan_chunk": 5}, 4)
            found = await check(one, repair=True)
            assert (found.kinds, found.exit_code) == ({"orphan_chunk": 5}, 1)
            assert (await check(one)).exit_code == 0

    asyncio.run(scene())
