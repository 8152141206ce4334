"""The manager's disk is lost, and a backup is restored that is older than the last changes of chains: a replica that
was put out of its chain since must not serve again with the old bytes that it has."""

import contextlib
import fcntl
import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.command_line import CommandLine
from tests.harness.processes import Program
from threefs.cluster.manager_records import FIRST_ADDED_TARGET
from threefs.errors import ThreefsError
from threefs.rpc.methods import GET_ROUTING
from threefs.wire import manager_pb2 as pb

BEFORE, SINCE = b"before the backup " * 5_000, b"since the backup. " * 5_000
#: On a busy machine a process may not run for a second or two. A node that is put out for that, between the look at the
#: states and the backup, is out in the backup, too.
LEASE_S = 3.0
pytestmark = pytest.mark.timeout(300)


def status(threefs: CommandLine) -> Any:
    """Its exit code says whether all nodes answer."""
    return json.loads(threefs.run("status", "--json").stdout)


def states(threefs: CommandLine) -> dict[int, str]:
    return {m["target_id"]: m["state"] for chain in status(threefs)["chains"] for m in chain["members"]}


def wait_for_states(threefs: CommandLine, expected: dict[int, str]) -> None:
    deadline = time.monotonic() + 60
    while (found := states(threefs)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def wait_for_awaited(threefs: CommandLine, expected: list[int]) -> None:
    deadline = time.monotonic() + 60
    while (found := status(threefs)["awaited_nodes"]) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def restore_manager(cluster: LocalCluster, directory: Path, backup: str = "backup") -> None:
    """Its disk is a new one, and has what the backup has."""
    data = directory / "manager" / "data"
    shutil.rmtree(data)
    arguments = ["restore", str(directory / backup), "--store", "manager", "--data-dir", str(data)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    cluster.manager.start()


@contextlib.contextmanager
def restored(directory: Path) -> Iterator[tuple[LocalCluster, CommandLine]]:
    """Node 2 was put out after the backup, then node 1 alone took a write; then the power was cut, and the manager's
    disk is lost and restored. Nothing but the manager and the metadata runs."""
    with LocalCluster(directory, storage=2, replicas=2, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs = CommandLine(cluster.address)
        with cluster.connect() as fs:
            fs.write_file("/file", BEFORE)
        wait_for_states(threefs, {101: "serving", 201: "serving"})  # a slow start puts one out
        threefs.ok("backup", "--once", str(directory / "backup"))
        cluster.storage[2].kill()
        wait_for_states(threefs, {101: "serving", 201: "offline"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        for program in (cluster.storage[1], cluster.meta, cluster.manager):
            program.kill()
        restore_manager(cluster, directory)
        cluster.meta.launch()
        yield cluster, threefs


def add_third_node(cluster: LocalCluster, threefs: CommandLine, directory: Path) -> Program:
    data = directory / "storage-3" / "data"
    settings = {**cluster.storage[1].settings, "node_id": 3, "domain": "host3", "data_dir": data}
    threefs.ok("node", "add", "3", "--domain", "host3")
    cluster.storage[3] = Program("threefs_storage", data.parent, **settings)
    return cluster.storage[3].start()


def read(cluster: LocalCluster) -> bytes:
    with cluster.connect(timeout_s=60.0) as fs:
        return fs.read_file("/file")


def test_a_replica_that_left_since_the_backup_does_not_serve_again(tmp_path: Path) -> None:
    with restored(tmp_path) as (cluster, threefs):
        cluster.storage[2].launch()
        wait_for_awaited(threefs, [1])
        assert "accept-unheard 1" in threefs.run("status").stdout
        with cluster.connect(timeout_s=3.0) as fs, pytest.raises(ThreefsError):
            fs.read_file("/file")
        cluster.storage[1].launch()
        for program in (cluster.meta, *cluster.storage.values()):
            program.wait_ready()
        assert read(cluster) == SINCE
        wait_for_states(threefs, {101: "serving", 201: "serving"})
        cluster.storage[1].kill()
        wait_for_states(threefs, {101: "offline", 201: "serving"})
        assert read(cluster) == SINCE
        cluster.storage[1].start()


def test_it_goes_on_without_a_node_that_is_gone_for_good(tmp_path: Path) -> None:
    with restored(tmp_path) as (cluster, threefs):
        shutil.rmtree(tmp_path / "storage-1" / "data")
        cluster.storage[2].launch()
        cluster.storage[1].launch()  # with an empty disk: it knows nothing of what was in its place
        wait_for_awaited(threefs, [1])
        time.sleep(2 * LEASE_S)
        assert status(threefs)["awaited_nodes"] == [1]
        refused = threefs.run("chain", "accept-unheard", "2", "--yes")
        assert refused.exit_code == 2 and "node 2 is not awaited; awaited nodes: 1" in refused.stderr
        dry = threefs.json("chain", "accept-unheard", "1", "--dry-run")
        assert dry["awaited"] == [] and dry["chains"] == [1] and dry["chains_without_another_copy"] == []
        assert "1 chain has a copy on node 1, 0 of them no other one" in threefs.ok(
            "chain", "accept-unheard", "1", "--dry-run"
        )
        assert status(threefs)["awaited_nodes"] == [1], "a dry run changes nothing"
        assert threefs.json("chain", "accept-unheard", "1", "--yes")["awaited"] == []
        for program in (cluster.meta, *cluster.storage.values()):
            program.wait_ready()
        assert read(cluster) == BEFORE[: len(SINCE)], "the loss that was accepted"
        wait_for_states(threefs, {101: "serving", 201: "serving"})


def test_processes_that_outlive_the_manager_tell_it_too(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, storage=2, replicas=2, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs = CommandLine(cluster.address)
        with cluster.connect() as fs:
            fs.write_file("/file", BEFORE)
        wait_for_states(threefs, {101: "serving", 201: "serving"})  # a slow start puts one out
        threefs.ok("backup", "--once", str(tmp_path / "backup"))
        cluster.storage[2].kill()
        wait_for_states(threefs, {101: "serving", 201: "offline"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        cluster.manager.kill()
        restore_manager(cluster, tmp_path)
        wait_for_awaited(threefs, [2])
        assert all(state == "serving" for state in states(threefs).values()), "as in the backup, and without leases"
        with cluster.connect(timeout_s=3.0) as fs, pytest.raises(ThreefsError):
            fs.read_file("/file")
        cluster.storage[2].start()
        assert read(cluster) == SINCE
        wait_for_states(threefs, {101: "serving", 201: "serving"})


@pytest.mark.parametrize(("outlive", "asked_twice"), [(True, False), (False, False), (True, True)])
def test_a_target_that_a_move_has_made_since_the_backup_has_what_was_acknowledged(
    tmp_path: Path, outlive: bool, asked_twice: bool
) -> None:
    """Node 3 has come since, and its target alone has the last write. `outlive`: its process was not stopped.
    `asked_twice`: it dies after it has taken in the routing of the restored manager, which has to ask again."""
    with LocalCluster(tmp_path, storage=2, replicas=2, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs = CommandLine(cluster.address)
        wait_for_states(threefs, {101: "serving", 201: "serving"})  # a slow start puts one out
        with cluster.connect() as fs:
            fs.write_file("/file", BEFORE)
        threefs.ok("backup", "--once", str(tmp_path / "backup"))
        came = add_third_node(cluster, threefs, tmp_path)
        threefs.ok("node", "drain", "2")
        added = FIRST_ADDED_TARGET + 1
        wait_for_states(threefs, {101: "serving", added: "serving"})
        cluster.storage[1].kill()
        wait_for_states(threefs, {101: "offline", added: "serving"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        cluster.manager.kill()
        if not outlive:
            for program in (cluster.storage[2], came):
                program.kill()
        restore_manager(cluster, tmp_path)
        if asked_twice:
            wait_for_awaited(threefs, [1])
            time.sleep(2 * LEASE_S)
            for program in (cluster.manager, came):
                program.kill()
            cluster.manager.start()
            came.launch()
        for program in (cluster.storage[1], *(() if outlive else (cluster.storage[2], came))):
            program.launch()
        assert read(cluster) == SINCE
        wait_for_states(threefs, {101: "serving", added: "serving"})
        assert {node["node_id"]: node["domain"] for node in status(threefs)["nodes"]}[3] == "host3"


@contextlib.contextmanager
def in_use(store: Path) -> Iterator[None]:
    """As by another process: it cannot be opened."""
    with (store / "records" / "LOCK").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.mark.parametrize("again", [False, True])
def test_a_store_that_cannot_be_opened_for_a_while_tells_what_was_acknowledged(tmp_path: Path, again: bool) -> None:
    """A move has brought it to node 1 since the backup, and it alone has the last writes. `again`: the node starts once
    more before it can be opened."""
    with LocalCluster(tmp_path, storage=2, replicas=1, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs, one = CommandLine(cluster.address), cluster.storage[1]
        wait_for_states(threefs, {101: "serving", 201: "serving"})
        threefs.ok("backup", "--once", str(tmp_path / "backup"))
        threefs.ok("node", "drain", "2")
        came = FIRST_ADDED_TARGET + 1
        wait_for_states(threefs, {101: "serving", came: "serving"})
        names = [f"/{number}" for number in range(8)]  # of both chains
        with cluster.connect() as fs:
            for name in names:
                fs.write_file(name, SINCE)
        one.kill()
        with in_use(tmp_path / "storage-1" / "data" / f"target-{came}"):
            one.start()
            cluster.manager.kill()
            restore_manager(cluster, tmp_path)
            wait_for_awaited(threefs, [1, 2])
            time.sleep(LEASE_S)  # in which the node takes the routing of the restored manager in
            if again:
                one.kill()
                one.launch()
            time.sleep(2 * LEASE_S)
            assert status(threefs)["awaited_nodes"] == [1, 2]
        with cluster.connect(timeout_s=60.0) as fs:
            assert [fs.read_file(name) for name in names] == [SINCE] * len(names)


def test_a_store_that_a_move_has_deleted_since_the_backup_is_waited_for(tmp_path: Path) -> None:
    """The last write is where the move has brought it, on a node that nobody can ask now. In the place of the deleted
    store its node has made a new one, by the routing of the restored manager: it knows nothing of the chain."""
    with LocalCluster(tmp_path, storage=2, replicas=2, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs = CommandLine(cluster.address)
        wait_for_states(threefs, {101: "serving", 201: "serving"})  # a slow start puts one out
        with cluster.connect() as fs:
            fs.write_file("/file", BEFORE)
        came = add_third_node(cluster, threefs, tmp_path)
        threefs.ok("backup", "--once", str(tmp_path / "backup"))
        cluster.storage[1].kill()
        wait_for_states(threefs, {101: "offline", 201: "serving"})
        threefs.ok("node", "drain", "2")
        added = FIRST_ADDED_TARGET + 1
        wait_for_states(threefs, {101: "offline", added: "serving"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        while (tmp_path / "storage-2" / "data" / "target-201").exists():
            time.sleep(0.1)
        came.kill()
        cluster.manager.kill()
        restore_manager(cluster, tmp_path)
        cluster.storage[1].launch()
        wait_for_awaited(threefs, [2])
        time.sleep(2 * LEASE_S)
        assert status(threefs)["awaited_nodes"] == [2]
        came.launch()
        assert read(cluster) == SINCE
        wait_for_states(threefs, {101: "serving", added: "serving"})


def wait_for_logged(program: Program, expected: str) -> None:
    deadline = time.monotonic() + 60
    while expected not in program.log():
        assert time.monotonic() < deadline, program.log()
        time.sleep(0.1)


def named_targets(cluster: LocalCluster) -> list[int]:
    return [target.target_id for target in cluster.ask(GET_ROUTING, pb.GetRoutingRequest()).routing.targets]


def wait_for_targets(cluster: LocalCluster, expected: list[int]) -> None:
    """In the routing, where a target that has left its chain stays until its node keeps nothing of it in use."""
    deadline = time.monotonic() + 60
    while (found := named_targets(cluster)) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.parametrize("outlive", [True, False])
def test_a_store_that_the_wrong_backup_does_not_know_is_kept_when_the_right_one_comes(
    tmp_path: Path, outlive: bool
) -> None:
    """An administrator has restored an old backup, and given up what it does not find. Then the node comes back that
    has what was written last, in a target that the old backup does not know. So the newest backup is restored, which
    knows it; but its chain goes on without it since. `outlive`: its process was suspended, not stopped."""
    with LocalCluster(tmp_path, storage=1, replicas=1, targets_per_disk=1, lease_s=LEASE_S) as cluster:
        threefs = CommandLine(cluster.address)
        came = add_third_node(cluster, threefs, tmp_path)
        threefs.ok("backup", "--once", str(tmp_path / "old"))
        threefs.ok("node", "drain", "1")
        added = FIRST_ADDED_TARGET + 1
        wait_for_states(threefs, {added: "serving"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        wait_for_targets(cluster, [added])
        threefs.ok("node", "undrain", "1")
        threefs.ok("backup", "--once", str(tmp_path / "new"))
        came.process.send_signal(signal.SIGSTOP) if outlive else came.kill()
        cluster.manager.kill()
        restore_manager(cluster, tmp_path, "old")
        wait_for_awaited(threefs, [1])
        deadline = time.monotonic() + 60
        for words in (("accept-unheard", "1"), ("accept-loss", "1")):
            while (done := threefs.run("chain", *words, "--yes")).exit_code:
                assert time.monotonic() < deadline, done.output
                time.sleep(0.1)
        wait_for_states(threefs, {101: "serving"})
        if outlive:
            came.process.send_signal(signal.SIGCONT)
            wait_for_logged(came, "is kept on the disk, closed")
        else:
            came.start().stop()
            came.start()
        cluster.manager.kill()
        restore_manager(cluster, tmp_path, "new")
        wait_for_states(threefs, {101: "serving"})
        wait_for_targets(cluster, [101])
        assert any((tmp_path / "storage-3" / "data" / f"target-{added}").iterdir())
