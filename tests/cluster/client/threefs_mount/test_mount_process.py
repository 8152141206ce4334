"""The process behind a mount: its beginning and its end."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from threefs_mount import mountpoints

from tests.harness.cluster import LocalCluster
from tests.harness.mounts import Mount, need_mounts
from tests.harness.processes import environment

need_mounts()

#: The process of a mount in which a background task dies when a file appears.
_DYING = """
import asyncio, os, sys
from threefs_mount.cache.page_revalidator import PageRevalidator
from threefs_mount.main import main
async def run(self):
    while not os.path.exists(os.environ["DIE"]):
        await asyncio.sleep(0.01)
    raise RuntimeError("a fault of ours")
PageRevalidator._run = run
main(sys.argv[1:])
"""


def test_a_signal_unmounts_and_stores(cluster: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(cluster.address, tmp_path / "mnt")
    root = mount.mount()
    file = os.open(root / "stored-at-the-end", os.O_CREAT | os.O_WRONLY)
    os.write(file, b"held")
    os.kill(mount.pid, signal.SIGTERM)
    with cluster.connect() as fs:
        deadline = time.monotonic() + 60
        while mountpoints.find(str(root)) is not None:
            assert time.monotonic() < deadline, mount.log.read_text()
            time.sleep(0.05)
        assert fs.read_file("/stored-at-the-end") == b"held"
    with pytest.raises(OSError):
        os.close(file)


@pytest.mark.parametrize("flags", ["ro", "noatime", "rw"])
def test_reads_change_access_times_unless_that_is_not_wanted(cluster: LocalCluster, tmp_path: Path, flags: str) -> None:
    with cluster.connect(noatime=True) as fs:
        fs.write_file("/read-once", b"abc")
        before = fs.stat("/read-once").atime_ns
        with Mount(cluster.address, tmp_path / "mnt", "-o", flags) as root:
            assert (root / "read-once").read_bytes() == b"abc"
        assert (fs.stat("/read-once").atime_ns > before) == (flags == "rw")


def test_read_ahead_is_raised(cluster: LocalCluster, tmp_path: Path) -> None:
    with Mount(cluster.address, tmp_path / "mnt") as root:
        mounted = mountpoints.find(str(root))
        assert mounted is not None
        assert int(Path(f"/sys/class/bdi/{mounted.device}/read_ahead_kb").read_text()) == 4096


def test_a_mount_that_has_become_useless_syncs_its_files_and_ends(cluster: LocalCluster, tmp_path: Path) -> None:
    point, die = tmp_path / "mnt", tmp_path / "die"
    point.mkdir()
    command = [sys.executable, "-c", _DYING, "--address", cluster.address, str(point)]
    with subprocess.Popen(
        command, env=environment() | {"DIE": str(die)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith("ready ")
            file = os.open(point / "held-when-it-died", os.O_CREAT | os.O_WRONLY)
            os.write(file, b"held")
            die.touch()
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1 and "'revalidation of open files' has ended: RuntimeError" in said
    for call in (lambda: os.write(file, b"more"), lambda: os.close(file), lambda: os.listdir(point)):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.ENOTCONN, "nobody writes into the directory below"
    assert mountpoints.clear_dead(str(point))
    with cluster.connect() as fs:
        assert fs.read_file("/held-when-it-died") == b"held"
