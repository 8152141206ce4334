"""Disks that fail or are full, under real processes."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import threefs_client

from tests.harness.cluster import LocalCluster
from tests.harness.small_disk import small_disk as mounted_disk
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

MIB = 1 << 20
LEASE_S = 2.0
LIMIT_S = 60.0
EIO = "failinfo=5"


def reports(cluster: LocalCluster, node: int) -> list[pb.TargetReport]:
    status = cluster.ask(GET_STATUS, pb.GetStatusRequest())
    return [target for found in status.nodes if found.node.node_id == node for target in found.targets]


def out_of_chain(cluster: LocalCluster, node: int) -> bool:
    """Whether no target of that node serves any more."""
    own = {report.target_id for report in reports(cluster, node)}
    chains = cluster.ask(GET_STATUS, pb.GetStatusRequest()).chains
    return bool(own) and not any(m.target_id in own and m.state == pb.SERVING for c in chains for m in c.members)


def healthy(cluster: LocalCluster) -> bool:
    chains = cluster.ask(GET_STATUS, pb.GetStatusRequest()).chains
    return all(member.state == pb.SERVING for chain in chains for member in chain.members)


def until(found: Callable[[], bool], cluster: LocalCluster, node: int) -> None:
    end = time.monotonic() + LIMIT_S
    while not found():
        assert time.monotonic() < end, f"{reports(cluster, node)}\n{cluster.storage[node].log()}"
        time.sleep(0.05)


class Injector:
    """System calls of one process that fail when the test says so."""

    def __init__(self, directory: Path) -> None:
        self._fifo = directory / "fiu"
        self.prefix = ["fiu-run", "-x", "-f", str(self._fifo)]

    def tell(self, process: int, command: str) -> None:
        subprocess.run(["fiu-ctrl", "-f", str(self._fifo), "-c", command, str(process)], check=True, timeout=30)


@pytest.fixture
def injector(tmp_path: Path) -> Injector:
    if shutil.which("fiu-run") is None:
        pytest.skip("libfiu is not installed (Debian: fiu-utils)")
    return Injector(tmp_path)


def fill_files(fs: threefs_client.FileSystem, names: str, size: int = MIB) -> dict[str, bytes]:
    content = {f"/{name}": os.urandom(size) for name in names}
    for path, data in content.items():
        with fs.open(path, "wb") as file:
            file.write(data)
    return content


def check_files(fs: threefs_client.FileSystem, content: dict[str, bytes]) -> None:
    for path, data in content.items():
        with fs.open(path, "rb") as file:
            assert file.read() == data


def test_a_disk_that_cannot_sync_any_more_leaves_its_chains(tmp_path: Path, injector: Injector) -> None:
    with LocalCluster(tmp_path, lease_s=LEASE_S, prefixes={2: injector.prefix}) as cluster:
        program = cluster.storage[2]
        with cluster.connect() as fs:
            content = fill_files(fs, "abcd")
            injector.tell(program.process.pid, f"enable name=posix/io/sync/fdatasync,{EIO}")
            content |= fill_files(fs, "efgh")  # writes go on without it, or run out of time
            until(lambda: out_of_chain(cluster, 2), cluster, 2)
            until(lambda: all(report.failure for report in reports(cluster, 2)), cluster, 2)
            check_files(fs, content)
            program.kill()
            program.start()
            until(lambda: healthy(cluster), cluster, 2)
            for node in (1, 3):
                cluster.storage[node].kill()
            check_files(fs, content)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """For the third storage process."""
    with mounted_disk(tmp_path / "storage-3" / "data", "256m") as disk:
        yield disk


def test_a_full_disk_is_read_only_until_there_is_room_again(tmp_path: Path, small_disk: Path) -> None:
    with LocalCluster(tmp_path, lease_s=LEASE_S) as cluster, cluster.connect() as fs:
        process = cluster.storage[3].process.pid
        content = fill_files(fs, "abcd")
        other = small_disk / "other"
        with other.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(64 << 10))

        def refused() -> bool:
            fill_files(fs, "e", 4 * MIB)  # where it is the head, it gives way
            return any(report.read_only and report.failure for report in reports(cluster, 3))

        until(refused, cluster, 3)
        check_files(fs, content)
        fs.remove("/a")
        del content["/a"]
        other.unlink()
        until(lambda: healthy(cluster) and not any(r.read_only for r in reports(cluster, 3)), cluster, 3)
        assert cluster.storage[3].process.pid == process and cluster.storage[3].process.poll() is None
        content |= fill_files(fs, "mn")
        for node in (1, 2):
            cluster.storage[node].kill()
        check_files(fs, content)
