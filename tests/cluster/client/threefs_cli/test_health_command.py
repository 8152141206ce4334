"""`threefs health` on a cluster of its own, of which parts are stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from threefs_cli import cluster_file, cluster_selector, health_command
from threefs_cli.cluster_file import Plan
from threefs_cli.main import main

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment
from threefs.rpc.methods import GET_STATUS
from threefs.wire import manager_pb2 as pb

WAIT_S = 60.0
NEARLY_FULL = {"disk_nearly_full", "store_nearly_full"}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    place = str(tmp_path / "cluster")
    assert CliRunner().invoke(main, ["up", "--dir", place, "--storage", "2", "--replicas", "2"]).exit_code == 0
    yield place
    CliRunner().invoke(main, ["down", "--dir", place])


def health(directory: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["health", "--dir", directory, "--json"])
    return result.exit_code, json.loads(result.stdout)


def codes(found: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in found["reasons"]}


def wait(directory: str, reached: Callable[[set[str]], bool]) -> tuple[int, dict[str, Any]]:
    deadline = time.monotonic() + WAIT_S
    while True:
        code, found = health(directory)
        if reached(codes(found) - NEARLY_FULL):  # the disk of this machine may be
            return code, found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def kill(directory: str, name: str) -> None:
    cluster = cluster_file.load(Path(directory))
    assert cluster is not None
    program = cluster.program(name)
    assert program.process is not None
    os.kill(program.process.pid, signal.SIGKILL)
    until(lambda: not program.runs)  # it closes its connections first, which others see


def test_the_exit_code_is_the_severity(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = wait(directory, lambda seen: not seen)
    assert (code, found["health"]) in ((0, "OK"), (1, "WARN")) and found["cluster_id"]
    assert codes(found) <= NEARLY_FULL and code == bool(codes(found))
    kill(directory, "storage-2")
    code, found = wait(directory, lambda seen: seen == {"node_silent", "chain_degraded"})
    assert (code, found["health"]) == (1, "WARN")
    kill(directory, "meta")
    code, found = wait(directory, lambda seen: "no_meta_service" in seen)
    assert (code, found["health"]) == (2, "ERR") and "process_stopped" in codes(found)
    (stopped,) = (reason["summary"] for reason in found["reasons"] if reason["code"] == "process_stopped")
    assert stopped == "meta of this cluster of `threefs up` does not run"  # the manager tells of storage nodes
    shown = CliRunner().invoke(main, ["health", "--dir", directory])
    assert shown.exit_code == 2 and shown.stdout.startswith("ERR  cluster ")
    assert "do: start it" in shown.stdout and "storage node 2 (127.0.0.1:" in shown.stdout
    kill(directory, "manager")
    monkeypatch.setattr(cluster_selector, "CONNECT_S", 3.0)  # nobody will answer
    code, found = health(directory)
    assert code == 2 and codes(found) == {"no_manager_answers", "process_stopped"}


def test_members_of_an_engine_that_do_not_run_are_named() -> None:
    """Without most of them there is no primary, and the managers cannot say why."""
    several = cluster_file.fresh(Plan(managers=3, metas=2, engine="etcd"))
    (found,) = health_command.stopped_processes(several)
    assert found.summary == "etcd-1, etcd-2, etcd-3, meta, meta-2 of this cluster of `threefs up` do not run"
    assert "`threefs up`" in found.advice


def test_clients_that_do_not_take_the_configuration_are_named(tmp_path: Path) -> None:
    def refuse(limit: int) -> None:
        if limit == 1 << 20:
            raise OSError("no room for it")

    with LocalCluster(tmp_path) as cluster, cluster.connect() as fs:

        def reasons() -> dict[str, str]:
            result = CliRunner().invoke(main, ["health", "--address", cluster.address, "--json"])
            return {reason["code"]: reason["summary"] for reason in json.loads(result.stdout)["reasons"]}

        def set_limit(text: str) -> None:
            command = ["config", "set", f"max_dirty_bytes={text}", "--address", cluster.address]
            assert CliRunner().invoke(main, command).exit_code == 0

        fs.stat("/")  # it connects with its first call
        assert fs._connected is not None
        context = fs._connected.context
        context.cluster_values.follow("max_dirty_bytes", refuse)
        set_limit("2MiB")
        assert not {code for code in reasons() if code.startswith("client_")}
        set_limit("1MiB")
        summary = reasons()["client_configuration_refused"]
        assert f"process {os.getpid()}: max_dirty_bytes (OSError: no room for it)" in summary
        context.cluster.on_configuration = lambda newest: None  # it hears of the next version, and does not take it
        set_limit("3MiB")
        until(lambda: "client_configuration_behind" in reasons())
        assert f"process {os.getpid()} (version 2); the newest is 3" in reasons()["client_configuration_behind"]


def test_a_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    code, found = health(str(tmp_path))
    assert (code, found["health"], codes(found)) == (2, "ERR", {"no_manager_answers"})
    assert "threefs up" in found["reasons"][0]["summary"]


def test_a_wrong_command_line_is_no_answer() -> None:
    result = CliRunner().invoke(main, ["health", "--address", "nonsense"])
    assert result.exit_code == 2 and "is not host:port" in result.output


def test_an_older_copy_of_the_metadata_is_named_until_the_right_one_is_back(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, same_ports=True) as cluster:

        def reasons() -> set[str]:
            result = CliRunner().invoke(main, ["health", "--address", cluster.address, "--json"])
            return codes(json.loads(result.stdout))

        data = tmp_path / "meta" / "data" / "kv"
        older, newest = data.with_name("older"), data.with_name("newest")
        cluster.meta.stop()
        shutil.copytree(data, older)
        cluster.meta.start()
        with cluster.connect() as fs:
            fs.mkdir("/d")
        cluster.meta.stop()
        assert "metadata_store_refused" not in reasons()
        data.rename(newest)
        older.rename(data)
        cluster.meta.launch()
        assert cluster.meta.process.wait(WAIT_S) == 1, cluster.meta.log()
        assert "metadata_store_refused" in reasons()
        data.rename(older)
        newest.rename(data)
        cluster.meta.start()
        assert "metadata_store_refused" not in reasons()


def test_a_backup_that_has_gone_is_named(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        backup = [sys.executable, "-m", "threefs_cli", "backup", str(tmp_path / "backup"), "--address", cluster.address]

        def reasons() -> dict[str, str]:
            result = CliRunner().invoke(main, ["health", "--address", cluster.address, "--json"])
            return {reason["code"]: reason["summary"] for reason in json.loads(result.stdout)["reasons"]}

        def copy_once() -> None:
            assert subprocess.run([*backup, "--once"], env=environment(), timeout=WAIT_S).returncode == 0

        copy_once()
        assert "backup_silent" not in reasons()
        process = subprocess.Popen(backup, env=environment())
        try:
            until(lambda: cluster.ask(GET_STATUS, pb.GetStatusRequest()).backups[0].report_interval_ms > 0)
        finally:
            process.kill()
            process.wait()
        until(lambda: "backup_silent" in reasons())
        assert str(tmp_path / "backup") in reasons()["backup_silent"]
        copy_once()
        assert "backup_silent" not in reasons()
