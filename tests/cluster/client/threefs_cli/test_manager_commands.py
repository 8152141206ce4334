"""The store of the manager is lost without a backup, and is made anew from what storage services know."""

import asyncio
import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from threefs_cli import cluster_file, manager_commands
from threefs_cli.cluster_file import Plan
from threefs_cli.local_cluster import LocalCluster
from threefs_cli.main import main

import threefs
from tests.cluster.test_restored_manager import SINCE, read, restore_manager, wait_for_states
from tests.harness.cluster import LocalCluster as HandmadeCluster
from tests.harness.command_line import CommandLine
from tests.harness.other_user import NOBODY, needs_root
from threefs import routing
from threefs.cluster.kept_routing import KeptRouting
from threefs.errors import PermissionDenied, StrangeStore
from threefs.ids import ChainId, NodeId, TargetId
from threefs.kv import engine_url
from threefs.wire import manager_pb2 as pb

pytestmark = pytest.mark.timeout(300)
PLAN = Plan(storage=4, replicas=2)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@needs_root
def test_no_store_is_made_by_root_in_the_directory_of_another_user(tmp_path: Path) -> None:
    (data := tmp_path / "data").mkdir()
    os.chown(data, NOBODY, NOBODY)
    found = cast(Any, SimpleNamespace(routing=pb.Routing(cluster_id="c")))
    with pytest.raises(PermissionDenied, match=f"{data} belongs to user {NOBODY}"):
        asyncio.run(manager_commands._make(found, None, engine_url.parse(f"rocks://{data}/kv")))
    assert not list(data.iterdir())


@pytest.mark.parametrize("held", [[101], []])
def test_targets_that_a_copy_has_named_beside_its_routing_or_before_are_read(held: list[int], tmp_path: Path) -> None:
    """The rebuilt manager gave their numbers to new targets."""
    named = routing.Target(TargetId(101), NodeId(1), ChainId(1))
    known = dataclasses.replace(routing.EMPTY, version=1, targets={TargetId(101): named})
    for version in (known, dataclasses.replace(known, version=2, targets={})):
        KeptRouting(tmp_path, 1).keep(version, held)
    (found,) = manager_commands._copies([tmp_path])
    assert not found.routing.targets and found.highest_target == 101


def test_a_cluster_without_its_managers_store_has_all_its_bytes_again(tmp_path: Path) -> None:
    local = LocalCluster(tmp_path / "cluster")
    home = local.directory
    content = {f"/dir/{number}": bytes([number]) * (1_500_000 + number) for number in range(8)}
    try:
        state = asyncio.run(local.up(PLAN))
        with threefs.connect(state.address) as fs:
            fs.mkdir("/dir")
            for path, data in content.items():
                fs.write_file(path, data)
        for arguments in (("create", "--replicas", "2", "--targets-per-disk", "2"), ("set-default", "2")):
            made = run("table", *arguments, "--dir", home)
            assert made.exit_code == 0, made.output
        with threefs.connect(state.address) as fs:
            content["/in-table-2"] = b"2" * 3_000_000
            fs.write_file("/in-table-2", content["/in-table-2"])
        refused = run("manager", "rebuild", "--dir", home, "--yes")
        assert refused.exit_code == 1 and "not lost: the manager has its store, or runs" in refused.stderr
        asyncio.run(local.down())
        shutil.rmtree(home / "manager" / "data")
        with pytest.raises(StrangeStore, match=r"`threefs manager rebuild`"):
            asyncio.run(local.up())
        shown = run("manager", "rebuild", "--dir", home, "--dry-run", "--json")
        assert shown.exit_code == 0, shown.output
        table = json.loads(shown.stdout)
        assert (table["made"], table["tables"], table["read_nodes"]) == (False, 2, [1, 2, 3, 4])
        assert not (home / "manager" / "data").exists()
        refused = run("manager", "rebuild", "--dir", home)  # nobody says yes
        assert refused.exit_code == 2 and "lost: the values that `threefs config` has set" in refused.stderr
        assert "give --yes" in refused.stderr
        done = run("manager", "rebuild", "--dir", home, "--yes", "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)["made"], done.output
        again = asyncio.run(local.up())
        assert again.address == state.address
        with threefs.connect(again.address) as fs:
            for path, data in content.items():
                assert fs.read_file(path) == data
            fs.write_file("/new", b"new" * 500_000)
            assert fs.read_file("/new") == b"new" * 500_000
        found = json.loads(run("status", "--dir", home, "--json").stdout)
        assert [table["table_id"] for table in found["tables"]] == [1, 2]
        checked = run("fsck", "--dir", home)
        assert checked.exit_code == 0, checked.output
    finally:
        asyncio.run(local.down())


def test_a_replica_with_old_bytes_does_not_serve_after_a_rebuild(tmp_path: Path) -> None:
    """The copies of the routing know nothing of the last changes of chains; the targets do."""
    with HandmadeCluster(tmp_path, storage=2, replicas=2, targets_per_disk=1) as cluster:
        command = CommandLine(cluster.address)
        with cluster.connect() as fs:
            fs.write_file("/file", b"old" * 30_000)
        wait_for_states(command, {101: "serving", 201: "serving"})
        cluster.storage[2].kill()
        wait_for_states(command, {101: "serving", 201: "offline"})
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        for program in (cluster.storage[1], cluster.meta, cluster.manager):
            program.kill()
        data = tmp_path / "manager" / "data"
        shutil.rmtree(data)
        copy = tmp_path / "copy-of-node-2"
        shutil.copy(tmp_path / "storage-2" / "data" / "routing", copy)
        done = run("manager", "rebuild", "--data-dir", data, copy, "--yes")
        assert done.exit_code == 0 and "the copies of node 1 were not read" in done.stderr, done.output
        cluster.manager.start()
        for program in (cluster.meta, *cluster.storage.values()):
            program.launch()
        for program in (cluster.meta, *cluster.storage.values()):
            program.wait_ready()
        assert read(cluster) == SINCE
        wait_for_states(command, {101: "serving", 201: "serving"})


@pytest.mark.parametrize("outlive", [True, False])
def test_a_backup_of_before_a_table_was_made_is_refused_and_rebuilt(tmp_path: Path, outlive: bool) -> None:
    """Its manager would make other chains of the same numbers. `outlive`: the storage processes were not stopped."""
    with HandmadeCluster(tmp_path, storage=2, replicas=2, targets_per_disk=1) as cluster:
        command = CommandLine(cluster.address)
        wait_for_states(command, {101: "serving", 201: "serving"})
        command.ok("backup", "--once", str(tmp_path / "backup"))
        command.ok("table", "create")
        command.ok("table", "set-default", "2")
        with cluster.connect() as fs:
            fs.write_file("/file", SINCE)
        assert command.json("stat", "/file")[0]["table_id"] == 2
        cluster.manager.kill()
        if not outlive:
            for program in cluster.storage.values():
                program.kill()
        restore_manager(cluster, tmp_path)
        for program in cluster.storage.values():
            if not outlive:
                program.launch()
            assert program.process.wait(120) != 0
            if outlive:  # what it has said: the restored manager does not know its target; its next start says why
                program.launch()
                assert program.process.wait(120) != 0
            assert "lacks chain table 2" in program.log() and "threefs manager rebuild" in program.log()
        for program in (cluster.manager, cluster.meta):
            program.kill()
        data = tmp_path / "manager" / "data"
        shutil.rmtree(data)
        copies = [tmp_path / f"storage-{node}" / "data" for node in cluster.storage]
        done = run("manager", "rebuild", "--data-dir", data, *copies, "--yes", "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)["tables"] == 2, done.output
        cluster.manager.start()
        for program in (cluster.meta, *cluster.storage.values()):
            program.launch()
        for program in (cluster.meta, *cluster.storage.values()):
            program.wait_ready()
        assert read(cluster) == SINCE


def test_what_cannot_be_rebuilt_says_why(tmp_path: Path) -> None:
    nothing = run("manager", "rebuild", "--data-dir", tmp_path / "m")
    assert nothing.exit_code == 2 and "name the data_dir of each storage service" in nothing.stderr
    elsewhere = run("manager", "rebuild", "--dir", tmp_path / "nowhere")
    assert elsewhere.exit_code == 1 and "holds no cluster" in elsewhere.stderr
    cluster_file.save(tmp_path, cluster_file.fresh(Plan()))
    unstarted = run("manager", "rebuild", "--dir", tmp_path)
    assert unstarted.exit_code == 1 and "no copy of the routing was found" in unstarted.stderr
