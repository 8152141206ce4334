"""A power cut takes the metadata disk. What an online backup has is restored: at most ten seconds of names are lost,
every other acknowledged byte is there, and no file shows the bytes of another."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import threefs
from tests.harness.processes import environment
from threefs.kv import dump

LIMIT_S = 120
LATE_NS = 10_000_000_000
FILE_BYTES = 40_000


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "threefs_cli", *arguments]


class Cluster:
    """One that `threefs up` starts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments, "--dir", str(self.directory)),
            capture_output=True,
            text=True,
            env=environment(),
            timeout=LIMIT_S,
        )

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self) -> None:
        self.address = json.loads(self.ok("up", "--json"))["address"]

    def power_cut(self) -> None:
        """All its processes at once."""
        state: Any = json.loads((self.directory / "cluster.json").read_text())
        for program in state["programs"]:
            os.kill(program["process"]["pid"], signal.SIGKILL)
        time.sleep(0.3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster")
    yield made
    made.ok("down")


@contextlib.contextmanager
def backing_up(cluster: Cluster, directory: Path, log: Path) -> Iterator[None]:
    """`threefs backup`, until it is killed with the rest."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command("backup", str(directory), "--dir", str(cluster.directory)), stderr=out, env=environment()
        )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not all(f"{role}: up to date".encode() in log.read_bytes() for role in ("meta", "manager")):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.kill()
        process.wait()


def moment_ns(shown: str) -> int:
    """Not later than the moment that is shown."""
    return int(datetime.fromisoformat(shown).timestamp() * 1e9)


def content_of(name: str) -> bytes:
    """Nothing of it is in any other file."""
    return (name.encode() + b" ").ljust(32, b".") * (FILE_BYTES // 32)


def write_files(address: str, prefix: str, seconds: float) -> dict[str, int]:
    """The names of the files that were acknowledged, and when, in nanoseconds of the clock of this machine."""
    done = {}
    with threefs.connect(address) as fs:
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until:
            name = f"/{prefix}{number:05d}"
            fs.write_file(name, content_of(name))
            done[name] = time.time_ns()
            number += 1
            if number % 7 == 6:  # a backup must know of removals and moves too
                gone = f"/{prefix}{number - 2:05d}"
                fs.remove(gone)
                del done[gone]
    return done


def check_restored(cluster: Cluster, acknowledged: dict[str, int], as_of_ns: int) -> list[str]:
    """The names that were lost. Raises AssertionError if any of them was acknowledged before the moment of the backup,
    or if a file is not whole: it has got its name and its length in one step, after its bytes."""
    with threefs.connect(cluster.address) as fs:
        names = {f"/{entry.name}" for entry in fs.list("/")}
        lost = [name for name in acknowledged if name not in names]
        early = [name for name in lost if acknowledged[name] < as_of_ns]
        assert not early, f"{len(early)} names were lost that the backup has"
        for name in names:
            assert fs.read_file(name) == content_of(name), f"{name} has lost bytes, or has bytes that are not its own"
    return lost


def fsck(cluster: Cluster, *options: str) -> dict[str, int]:
    done = cluster.run("fsck", "--json", *options)
    assert done.returncode in (0, 1, 4), done.stderr
    found: dict[str, int] = json.loads(done.stdout)["kinds"]
    return found


def check_new_files_show_nothing_old(cluster: Cluster, orphans: int) -> None:
    with threefs.connect(cluster.address) as fs:
        for number in range(orphans + 50):
            name = f"/fresh{number}"
            with fs.open(name, "wb") as file:
                file.allocate(0, FILE_BYTES)
            assert not any(fs.read_file(name)), f"{name} was never written, and shows bytes"
            fs.remove(name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lost", [("meta",), ("meta", "manager")], ids=["meta", "meta and manager"])
def test_a_power_cut_and_a_lost_metadata_disk_are_survived(
    cluster: Cluster, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    cluster.up()
    acknowledged = write_files(cluster.address, "before", 2.0)
    dumped = json.loads(cluster.ok("meta", "dump", "--json", str(tmp_path / "online.dump")))
    assert dumped["records"] > 2 * len(acknowledged), "names and inodes, while it serves"
    with (tmp_path / "online.dump").open("rb") as content:
        assert dump.check(content).records == dumped["records"]
    with backing_up(cluster, tmp_path / "backup", tmp_path / "backup.log"):
        acknowledged |= write_files(cluster.address, "during", 6.0)
        backed_up_until_ns = time.time_ns()
    # The backup was cut off first: what is acknowledged now is lost with the disk.
    acknowledged |= write_files(cluster.address, "after", 1.0)
    cut_ns = time.time_ns()
    cluster.power_cut()
    for role in lost:
        (cluster.directory / role / "data").rename(tmp_path / f"lost-{role}")

    refused = cluster.run("up")
    assert refused.returncode == 1 and "threefs restore" in refused.stderr, refused.stderr
    told = json.loads(cluster.ok("restore", str(tmp_path / "backup"), "--json"))["restored"]
    as_of_ns = {one["store"]: moment_ns(one["as_of"]) for one in told}
    assert set(as_of_ns) == set(lost) and as_of_ns["meta"] <= as_of_ns.get("manager", cut_ns)
    assert as_of_ns["meta"] > backed_up_until_ns - LATE_NS
    cluster.up()

    gone = check_restored(cluster, acknowledged, as_of_ns["meta"])
    assert any(name.startswith("/after") for name in gone), "else nothing was lost, and nothing was tried"
    assert not any(name.startswith("/before") for name in gone)
    kinds = fsck(cluster)
    assert set(kinds) <= {"orphan_chunk"} and kinds.get("orphan_chunk", 0) > 0, kinds
    check_new_files_show_nothing_old(cluster, kinds["orphan_chunk"])
    fsck(cluster, "--repair")
    assert fsck(cluster) == {}
    check_restored(cluster, acknowledged, as_of_ns["meta"])

    # The disk is found again, and put back: an older copy of the store by now.
    cluster.ok("down")
    (cluster.directory / "meta" / "data").rename(tmp_path / "restored")
    (tmp_path / "lost-meta").rename(cluster.directory / "meta" / "data")
    refused = cluster.run("up")
    assert refused.returncode == 1 and "older copy" in refused.stderr, refused.stderr
    (cluster.directory / "meta" / "data").rename(tmp_path / "found")
    (tmp_path / "restored").rename(cluster.directory / "meta" / "data")
    cluster.up()
    check_restored(cluster, acknowledged, as_of_ns["meta"])
