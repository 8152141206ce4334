"""`threefs up --managers 3 --metas 2 --engine ...`: any one process is killed under load, and started again."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from threefs_cli import cluster_file
from threefs_cli.cluster_file import ClusterFile, Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_cli.main import main
from threefs_cli.readiness import incomplete_chains

from tests.harness.etcd import needs_etcd
from tests.harness.paced_load import PacedLoad
from tests.harness.postgres import needs_postgres
from threefs.errors import InvalidArgument, Unavailable
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

NEEDS = {"etcd": needs_etcd, "postgresql": needs_postgres}


@pytest.fixture
def local() -> Iterator[LocalCluster]:
    """In a directory that the user of PostgreSQL can reach."""
    home = Path(tempfile.mkdtemp(prefix="threefs-up-"))
    home.chmod(0o711)
    cluster = LocalCluster(home / "cluster")
    try:
        yield cluster
    finally:
        asyncio.run(cluster.down())
        assert not cluster.running()
        shutil.rmtree(home)


def status(cluster: LocalCluster, state: ClusterFile) -> pb.GetStatusReply:
    return asyncio.run(cluster._call_manager(state, GET_STATUS, pb.GetStatusRequest()))


def wait_healthy(cluster: LocalCluster, state: ClusterFile) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        found = status(cluster, state)
        if not incomplete_chains(found) and all(node.alive for node in found.nodes):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert {program.name for program in cluster.running()} == {program.name for program in state.programs}


def killed(cluster: LocalCluster, name: str) -> float:
    """Kill a process; the moment."""
    moment = time.monotonic()
    asyncio.run(cluster.kill(name))
    return moment


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["etcd", "postgresql"])
def test_any_one_process_may_be_killed_under_load(local: LocalCluster, engine: str) -> None:
    """Run with -s it prints how long clients waited. The only server of PostgreSQL is missed until it is back."""
    NEEDS[engine]()
    state = asyncio.run(local.up(Plan(managers=3, metas=2, engine=engine)))
    wait_healthy(local, state)
    with PacedLoad(state.address) as load:
        load.back_after(time.monotonic())
        for program in state.programs:
            moment = killed(local, program.name)
            if program.name == "postgresql":
                state = asyncio.run(local.up())
            print(f"{engine}: {program.name} killed, all clients went on after {load.back_after(moment):.2f} s")
            again = asyncio.run(local.up())
            assert again.address == state.address
            state = again
            wait_healthy(local, state)
            load.back_after(time.monotonic())
    assert not load.errors


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_the_engine_is_part_of_the_cluster(local: LocalCluster) -> None:
    needs_etcd()
    directory = str(local.directory)
    code, printed = run("up", "--dir", directory, "--storage", "1", "--metas", "2", "--engine", "etcd", "--json")
    assert code == 0, printed
    code, printed = run("ps", "--dir", directory, "--json")
    rows = {row["name"]: row for row in json.loads(printed)["programs"]}
    assert code == 0 and [*rows] == ["etcd-1", "etcd-2", "etcd-3", "manager", "meta", "meta-2", "storage-1"]
    open_files = [path for path in [local.directory, *local.directory.rglob("*")] if path.stat().st_mode & 0o077]
    assert open_files == []
    os.kill(rows["etcd-2"]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while run("ps", "--dir", directory)[0] == 0:
        assert time.monotonic() < deadline
    code, printed = run("status", "--dir", directory)
    assert code == 1 and "not running: etcd-2; `threefs up` starts what is missing" in printed
    assert "does not run" in run("ps", "--dir", directory)[1]
    shutil.rmtree(local.directory / "etcd-2" / "data")
    with pytest.raises(Unavailable, match=r"etcd-2 has lost its data.*the rest of the cluster runs"):
        asyncio.run(local.up())
    code, printed = run("up", "--dir", directory, "--managers", "2")
    assert code == 2 and "`threefs down`, then `threefs up --managers 2`" in printed
    assert run("down", "--dir", directory)[0] == 0
    code, printed = run("ps", "--dir", directory)
    assert code == 1 and printed.count("does not run") == len(rows)


def test_managers_are_added_to_a_cluster_that_is_stopped(local: LocalCluster) -> None:
    needs_etcd()
    asyncio.run(local.up(Plan(storage=1, replicas=1, engine="etcd")))
    asyncio.run(local.up(Plan(storage=1, replicas=1, metas=2, engine="etcd")))
    with pytest.raises(InvalidArgument, match="`threefs down`"):
        asyncio.run(local.up(Plan(storage=1, replicas=1, managers=2, metas=2, engine="etcd")))
    asyncio.run(local.down())
    state = asyncio.run(local.up(Plan(storage=1, replicas=1, managers=2, metas=2, engine="etcd")))
    assert len(state.of(cluster_file.MANAGER)) == 2
    deadline = time.monotonic() + 60.0
    while "does not answer" in (shown := run("status", "--dir", str(local.directory))[1]):  # it asks for two seconds
        assert time.monotonic() < deadline, shown
    assert shown.count(" is primary\n") == 1 and shown.count(" stands by\n") == 1
    asyncio.run(local.kill("manager"))
    with PacedLoad(state.address, clients=1) as load:
        load.back_after(time.monotonic())
    assert len(status(local, state).nodes) == 3
    code, shown = run("status", "--dir", str(local.directory))
    assert code == 1 and shown.count(" is primary\n") == 1 and " does not answer: " in shown
