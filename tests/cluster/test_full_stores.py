"""The disks of the embedded stores are full: `threefs health` and `threefs status` say whose, while reads go on."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.small_disk import small_disk
from threefs.errors import NoSpace, ThreefsError

WAIT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    disks = small_disk(tmp_path / "manager", "64m"), small_disk(tmp_path / "meta", "64m")
    with disks[0], disks[1], LocalCluster(tmp_path, storage=1, replicas=1) as cluster:
        yield cluster


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """Returns what fills it. Changes then have room only where the log of the store was allocated before."""
    path = disk / "of others"
    with path.open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free > leave_bytes:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    return path


def reasons(cluster: LocalCluster, code: str) -> dict[str, str]:
    """Those with this code: the severity of each, by its summary."""
    result = CliRunner().invoke(main, ["health", "--address", cluster.address, "--json"])
    found = json.loads(result.stdout)["reasons"]
    return {one["summary"]: one["severity"] for one in found if one["code"] == code}


def wait_for(cluster: LocalCluster, code: str, count: int) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_S
    while len(found := reasons(cluster, code)) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_full_stores_are_named_until_there_is_room(cluster: LocalCluster, tmp_path: Path) -> None:
    with cluster.connect() as fs, cluster.connect(timeout_s=5.0) as impatient:
        fs.mkdir("/before")
        fillers = [fill(tmp_path / name) for name in ("manager", "meta")]
        with pytest.raises(ThreefsError):
            for _ in range(10_000):
                impatient.chmod("/before", 0o755)
        found = wait_for(cluster, "store_full", 2)
        assert set(found.values()) == {"ERR"}
        for service, place in ("the manager", "manager"), ("meta service 1000", "meta"):
            (summary,) = (one for one in found if one.startswith(service))
            assert f"the disk of its store {tmp_path / place / 'data' / 'kv'} is full: " in summary
        shown = CliRunner().invoke(main, ["status", "--address", cluster.address]).stdout
        assert "the manager: the disk of its store" in shown and "it refuses all changes until" in shown
        assert "names/s" in shown, "the meta service still answers"
        fs.stat("/before")
        for filler in fillers:
            filler.unlink()
        wait_for(cluster, "store_full", 0)
        wait_for(cluster, "store_removals_only", 0)
        fs.mkdir("/after")


def test_removals_go_on_when_nothing_can_be_added(cluster: LocalCluster, tmp_path: Path) -> None:
    with cluster.connect() as fs:
        fs.mkdir("/before")
        fs.write_file("/before/file", b"1")
        fs.write_file("/before/other", b"2")
        filler = fill(tmp_path / "meta", leave_bytes=12 << 20)
        found = wait_for(cluster, "store_removals_only", 1)
        assert set(found.values()) == {"ERR"} and not reasons(cluster, "store_full")
        for add in (
            lambda: fs.mkdir("/after"),
            lambda: fs.write_file("/after", b"3"),
            lambda: fs.symlink("target", "/after"),
            lambda: fs.hard_link("/before/file", "/after"),
            lambda: fs.setxattr("/before/file", "user.a", b"4"),
        ):
            with pytest.raises(NoSpace, match="room only for removals"):
                add()
        shown = CliRunner().invoke(main, ["status", "--address", cluster.address]).stdout
        assert "it takes only removals" in shown
        assert fs.read_file("/before/other") == b"2"
        fs.rename("/before/other", "/before/renamed")
        fs.remove("/before/file")
        fs.remove("/before", recursive=True)
        assert not fs.exists("/before")
        filler.unlink()
        wait_for(cluster, "store_removals_only", 0)
        fs.mkdir("/after")
