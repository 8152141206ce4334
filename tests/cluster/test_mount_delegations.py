"""Names that others add are there at once, also in directories that are delegated to a mount."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from threefs_client import connect_async
from threefs_mount.cache.delegation import CREATES_BEFORE_REQUEST

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Creates, Mount, need_mounts
from tests.harness.postgres import PostgresServer
from tests.harness.shared_cluster import SharedCluster
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb

need_mounts()

ROUNDS = 6
MANY = 10 * CREATES_BEFORE_REQUEST
LOOKS_BEFORE_DELEGATION = 2 * CREATES_BEFORE_REQUEST  # until it is granted


@pytest.fixture(scope="module")
def two(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    top = tmp_path_factory.mktemp("delegations")
    with Mount(cluster.address, top / "here") as here, Mount(cluster.address, top / "there") as there:
        yield here, there


def calls(address: str) -> dict[str, int]:
    """What the meta service was asked, by method."""

    async def ask() -> dict[str, int]:
        async with await connect_async(address) as fs:
            reply = await fs.context.meta.call(methods.STATISTICS, pb.StatisticsRequest(), timeout_s=10.0)
            return {one.method: one.names for one in reply.calls}

    return asyncio.run(ask())


def make(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def test_creates_and_renames_of_many_files_need_no_lookup_each(cluster: LocalCluster, two: tuple[Path, Path]) -> None:
    here = two[0] / "many"
    here.mkdir()
    before, creates = calls(cluster.address), Creates()
    for number in range(MANY):
        creates.make(here / str(number))
    made = calls(cluster.address)
    assert 1 <= made["Delegate"] - before.get("Delegate", 0) <= 1 + creates.pauses
    looks = made.get("Lookup", 0) + made.get("BatchStat", 0) - before.get("Lookup", 0) - before.get("BatchStat", 0)
    assert looks < MANY // 2 + creates.pauses * LOOKS_BEFORE_DELEGATION
    assert len(os.listdir(two[1] / "many")) == MANY


class Maker:
    """A program that makes files all the time, so that its mount holds the directory."""

    def __init__(self, directory: Path) -> None:
        self.failures: list[OSError] = []
        self._directory = directory
        self._stop, self._delegated = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        made = 0
        try:
            while not self._stop.is_set():
                make(self._directory / f"own-{made}")
                made += 1
                if made == 4 * CREATES_BEFORE_REQUEST:
                    self._delegated.set()
        except OSError as error:
            self.failures.append(error)
            self._delegated.set()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._delegated.wait(60.0)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("what", ["file", "directory", "symlink", "link", "rename"])
def test_names_of_others_are_there_at_once(two: tuple[Path, Path], what: str) -> None:
    see_names_of_others(two, what, ROUNDS)


@pytest.mark.timeout(300)
def test_so_they_are_with_several_meta_services(postgres: PostgresServer, tmp_path: Path) -> None:
    engines = postgres.schema("delegations_manager"), postgres.schema("delegations_meta")
    with SharedCluster(tmp_path, *engines, managers=1, metas=3) as cluster:
        here, there = Mount(cluster.address, tmp_path / "here"), Mount(cluster.address, tmp_path / "there")
        with here as first, there as second:
            see_names_of_others((first, second), "file", 2)
            see_names_of_others((second, first), "rename", 1)


def see_names_of_others(two: tuple[Path, Path], what: str, rounds: int) -> None:
    for number in range(rounds):
        here, there = (mount / f"{what}-{number}" for mount in two)
        here.mkdir()
        outside = two[1] / f"{what}-{number}-outside"
        make(outside)
        add: dict[str, Callable[[Path], object]] = {
            "file": make,
            "directory": os.mkdir,
            "symlink": partial(os.symlink, "target"),
            "link": partial(os.link, outside),
            "rename": partial(os.rename, outside),
        }
        maker = Maker(here)
        with maker:
            for name in ("x", "y"):
                assert not (here / name).exists()
                add[what](there / name)
                assert os.path.lexists(here / name)
                with pytest.raises(FileExistsError):
                    make(here / name)
                if what == "rename":
                    make(outside)
        assert not maker.failures


def test_a_mount_that_is_killed_holds_up_others_only_for_a_moment(cluster: LocalCluster, tmp_path: Path) -> None:
    dead = Mount(cluster.address, tmp_path / "dead")
    root = dead.mount()
    (root / "left").mkdir()
    for number in range(MANY):
        make(root / "left" / str(number))
    dead.kill()
    dead.umount("--lazy")
    with Mount(cluster.address, tmp_path / "other") as other:
        make(other / "left" / "more")
        assert len(os.listdir(other / "left")) == MANY + 1
