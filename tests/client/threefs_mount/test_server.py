"""The process behind a mount: its beginning and its end."""

import os
import signal
from pathlib import Path

import pytest
from threefs_mount import mountpoints

from tests.support.cluster import LocalCluster
from tests.support.mounts import Mount, need_mounts

need_mounts()


def test_a_signal_unmounts_and_stores(cluster: LocalCluster, tmp_path: Path) -> None:
    mount = Mount(cluster.address, tmp_path / "mnt")
    root = mount.mount()
    file = os.open(root / "stored-at-the-end", os.O_CREAT | os.O_WRONLY)
    os.write(file, b"held")
    os.kill(mount.pid, signal.SIGTERM)
    with cluster.connect() as fs:
        for _ in range(1000):
            if mountpoints.find(str(root)) is None:
                break
            mountpoints.servers(str(root))
        assert mountpoints.find(str(root)) is None, mount.log.read_text()
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
