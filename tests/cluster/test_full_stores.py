"""The disks of the embedded stores are full: `threefs health` and `threefs status` say whose, while reads go on."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.small_disk import small_disk
from threefs.errors import ThreefsError

WAIT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    disks = small_disk(tmp_path / "manager", "16m"), small_disk(tmp_path / "meta", "16m")
    with disks[0], disks[1], LocalCluster(tmp_path, storage=1, replicas=1) as cluster:
        yield cluster


def fill(disk: Path) -> Path:
    """Returns what fills it. Changes have room only where the log of the store was allocated before."""
    path = disk / "of others"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def reasons(cluster: LocalCluster) -> dict[str, str]:
    """Those of full stores: the severity of each, by its summary."""
    result = CliRunner().invoke(main, ["health", "--address", cluster.address, "--json"])
    found = json.loads(result.stdout)["reasons"]
    return {one["summary"]: one["severity"] for one in found if one["code"] == "store_full"}


def wait_for_full(cluster: LocalCluster, count: int) -> dict[str, str]:
    deadline = time.monotonic() + WAIT_S
    while len(found := reasons(cluster)) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    return found


def test_full_stores_are_named_until_there_is_room(cluster: LocalCluster, tmp_path: Path) -> None:
    with cluster.connect(timeout_s=5.0) as fs:
        fs.mkdir("/before")
        fillers = [fill(tmp_path / name) for name in ("manager", "meta")]
        with pytest.raises(ThreefsError):
            for number in range(10_000):
                fs.mkdir(f"/{number}")
        found = wait_for_full(cluster, 2)
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
        wait_for_full(cluster, 0)
        fs.mkdir("/after")
