"""Stores on the disk of targets that the cluster does not have."""

import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from structlog.testing import capture_logs
from threefs_storage.stray_stores import StrayStores

from tests.cluster.services.threefs_storage.test_unnamed_stores import closed_stores, without_target_101
from tests.cluster.services.threefs_storage.test_unopened_stores import LASTSRV, refusing, routing_of
from tests.harness.chain_harness import OFFLINE
from threefs.env.disk import RealDisk
from threefs.errors import DiskFailed
from threefs.ids import TargetId
from threefs.routing import Routing

ROUTING = routing_of(LASTSRV, OFFLINE)  # with targets 101 and 102 of this node


@asynccontextmanager
async def strays_in(directory: Path, needed: Collection[int] = ()) -> AsyncIterator[tuple[StrayStores, RealDisk]]:
    disk = RealDisk(threads=1)
    yield StrayStores(directory, disk, lambda: [*map(TargetId, needed)]), disk
    await disk.close()


def make_store(directory: Path, name: str, size: int) -> None:
    (directory / name / "records").mkdir(parents=True)
    (directory / name / "records" / "1").write_bytes(bytes(size))


async def looked(strays: StrayStores, routing: Routing = ROUTING) -> tuple[list[int], list[tuple[str, int]]]:
    """The targets that are reported, and what the log says: the names of directories with their bytes."""
    with capture_logs() as logs:
        await strays.look(lambda: routing)
    report = strays.report()
    named = [(Path(str(one["place"])).name, int(one["bytes"])) for one in logs if one["log_level"] == "warning"]
    return [] if report is None else list(report.targets), named


async def test_stores_whose_targets_the_cluster_does_not_have_are_named_once_and_reported(tmp_path: Path) -> None:
    for name in ("target-101", "target-101.damaged", "target-102", "target-301", "target-302", "target-303.damaged"):
        make_store(tmp_path, name, 8192)
    for name in ("target-x", "target-007", "target-4294967296", "target-304.being-removed", "routing"):
        (tmp_path / name).mkdir()
    async with strays_in(tmp_path, needed=[302]) as (strays, _):
        assert strays.report() is None
        assert await looked(strays) == ([301, 303], [("target-301", 8192), ("target-303.damaged", 8192)])
        report = strays.report()
        assert report is not None and report.bytes == 2 * 8192
        assert await looked(strays) == ([301, 303], [])
        make_store(tmp_path, "target-301.damaged", 4096)
        assert await looked(strays) == ([301, 303], [("target-301.damaged", 4096)])
        for name in ("target-301", "target-301.damaged", "target-303.damaged"):
            shutil.rmtree(tmp_path / name)
        assert await looked(strays) == ([], []) and strays.report() is None


async def test_one_that_the_routing_names_again_is_no_stray(tmp_path: Path) -> None:
    make_store(tmp_path, "target-102", 4096)
    async with strays_in(tmp_path) as (strays, _):
        assert (await looked(strays, routing_of(LASTSRV, OFFLINE, targets=(101,))))[0] == [102]
        assert await looked(strays) == ([], [])


async def test_a_disk_that_fails_is_asked_again(tmp_path: Path) -> None:
    make_store(tmp_path, "target-301", 4096)
    async with strays_in(tmp_path) as (strays, disk):
        measure = disk.directory_bytes

        async def fail(path: Path) -> int:
            raise DiskFailed(f"{path}: input/output error")

        disk.directory_bytes = fail  # type: ignore[method-assign]
        assert await looked(strays) == ([], [])
        disk.directory_bytes = measure  # type: ignore[method-assign]
        assert await looked(strays) == ([301], [("target-301", 4096)])


async def test_one_that_cannot_be_measured_hides_no_other_one(tmp_path: Path) -> None:
    make_store(tmp_path, "target-301", 4096)
    make_store(tmp_path, "target-302", 4096)
    async with strays_in(tmp_path) as (strays, disk):
        measure = disk.directory_bytes

        async def fail(path: Path) -> int:
            if path.name == "target-301":
                raise DiskFailed(f"{path}: input/output error")
            return await measure(path)

        disk.directory_bytes = fail  # type: ignore[method-assign]
        assert await looked(strays) == ([302], [("target-302", 4096)])


async def test_one_that_a_restored_manager_may_ask_for_is_no_stray(tmp_path: Path) -> None:
    """Until it knows that its chain goes on without it."""
    await closed_stores(tmp_path)
    routing = without_target_101()
    async with refusing(tmp_path, {}) as (targets, _):
        await targets.unnamed.find([TargetId(101)], routing)
        assert await looked(targets.strays, routing) == ([], [])
        await targets.unnamed.tell(routing)
        assert (await looked(targets.strays, routing))[0] == [101]
