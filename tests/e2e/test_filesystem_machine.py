"""Random calls through the client library and the kernel, on one cluster, with a local directory as the judge.

`make machine EXAMPLES=1000 STEPS=200` runs it for long, and differently each time.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test
from threefs_client import connect_async
from threefs_fsck import check

from tests.harness.client_driver import run
from tests.harness.cluster import LocalCluster
from tests.harness.differential_trees import TwoTrees, World
from tests.harness.filesystem_machine import FilesystemMachine, LookingMachine
from tests.harness.machine_faults import FAULTS, OF_SERVICES
from tests.harness.mounts import Mount, lacking

EXAMPLES, STEPS = "THREEFS_MACHINE_EXAMPLES", "THREEFS_MACHINE_STEPS"
SECOND_S, MARGIN_S = 0.2, 0.05
LIMIT_S = 36_000 if EXAMPLES in os.environ else 600

if os.geteuid():
    pytest.skip("only root can act as other users in a local directory", allow_module_level=True)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that may be killed."""
    directory = tmp_path_factory.mktemp("fragile")
    with LocalCluster(directory, storage=2, replicas=2, targets_per_disk=4, lease_s=4.0) as running:
        yield running


@pytest.fixture(scope="module")
def mounted(fragile: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    if reason := lacking():
        pytest.skip(reason)
    mount = Mount(fragile.address, tmp_path_factory.mktemp("machine") / "mnt", "--cache", "0")
    with mount:
        yield mount


@pytest.fixture(scope="module")
def remembering(fragile: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """A mount that answers from memory, for as long as mounts do by default."""
    mount = Mount(fragile.address, tmp_path_factory.mktemp("remembering") / "mnt")
    with mount:
        yield mount


@pytest.fixture(scope="module")
def second(fragile: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    mount = Mount(fragile.address, tmp_path_factory.mktemp("second") / "mnt", "--cache", str(SECOND_S))
    with mount:
        yield mount


def play(
    cluster: LocalCluster,
    mount: Mount | None,
    local: Path,
    examples: int,
    machine: type[TwoTrees] = FilesystemMachine,
    **options: Any,
) -> None:
    """As many of a hundred examples."""
    local.mkdir()
    fs = run(connect_async(cluster.address, timeout_s=60.0, read_ahead_bytes=1))
    try:
        world = World(cluster, mount, fs, local, **options)
        bound = type("Machine", (machine,), {"world": world})
        chosen = settings(
            max_examples=max(1, int(os.environ.get(EXAMPLES, 100)) * examples // 100),
            stateful_step_count=int(os.environ.get(STEPS, 50)),
            derandomize=EXAMPLES not in os.environ,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        try:
            run_state_machine_as_test(bound, settings=chosen)
        except Flaky as error:
            raise AssertionError("not each time; the first time it was\n" + "".join(world.failures[:1])) from error
        report = run(check(fs))
        assert report.complete and not report.findings, report.findings
    finally:
        run(fs.close())


@pytest.mark.timeout(LIMIT_S)
def test_client_and_mount(fragile: LocalCluster, mounted: Mount, tmp_path: Path) -> None:
    play(fragile, mounted, tmp_path / "local", 30)


@pytest.mark.timeout(LIMIT_S)
def test_a_mount_that_remembers(fragile: LocalCluster, remembering: Mount, tmp_path: Path) -> None:
    """On one mount everybody sees everything at once, whatever it remembers."""
    play(fragile, remembering, tmp_path / "local", 12, LookingMachine, alone=True)


@pytest.mark.timeout(LIMIT_S)
def test_two_mounts(fragile: LocalCluster, mounted: Mount, second: Mount, tmp_path: Path) -> None:
    """What others change is seen after the time for which a mount may remember."""
    play(fragile, mounted, tmp_path / "local", 8, LookingMachine, second=second, second_s=SECOND_S + MARGIN_S)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("fault", FAULTS)
def test_with_faults(fragile: LocalCluster, mounted: Mount, tmp_path: Path, fault: str) -> None:
    play(fragile, mounted, tmp_path / "local", 2, fault=fault)


@pytest.mark.timeout(LIMIT_S)
def test_client_alone(fragile: LocalCluster, tmp_path: Path) -> None:
    """All of it where nothing can be mounted, else a sample: the other tests go through the client too."""
    play(fragile, None, tmp_path / "local", 86 if lacking() else 10)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.skipif(not lacking(), reason="test_with_faults does it with a mount")
@pytest.mark.parametrize("fault", OF_SERVICES)
def test_client_alone_with_faults(fragile: LocalCluster, tmp_path: Path, fault: str) -> None:
    play(fragile, None, tmp_path / "local", 3, fault=fault)
