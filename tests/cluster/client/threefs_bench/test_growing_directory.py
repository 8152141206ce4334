import asyncio
from pathlib import Path

from threefs_bench import growing_directory
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster


def test_a_growing_directory_is_measured_and_removed(tmp_path: Path) -> None:
    async def body() -> list[growing_directory.Size]:
        cluster = LocalCluster(tmp_path / "cluster")
        started = await cluster.up(Plan(storage=1, replicas=1))
        try:
            process = started.program("meta").process
            assert process is not None
            return await growing_directory.measure(started.address, process.pid, (1000, 3000), print)
        finally:
            await cluster.down()

    sizes = asyncio.run(body())
    assert [size.entries for size in sizes] == [size.listed for size in sizes] == [1000, 3000]
    assert all(size.service_bytes > 0 and size.creates_per_s > 0 for size in sizes)
    assert growing_directory.table(sizes).count("\n") == 4
