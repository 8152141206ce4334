"""The programs as a service manager runs them."""

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT, START_S, Program

SYSCALLS = ROOT / "tests" / "harness" / "syscalls.py"
UNITS = ROOT / "deploy" / "systemd"


def under(unit: str) -> list[str]:
    return [sys.executable, str(SYSCALLS), str(UNITS / unit)]


def programs(cluster: LocalCluster) -> list[Program]:
    return [cluster.manager, cluster.meta, *cluster.storage.values()]


def told_until(listener: socket.socket, enough: Callable[[list[str]], bool]) -> list[str]:
    said: list[str] = []
    while not enough(said):
        said += listener.recv(1000).decode().splitlines()
    return said


def test_every_program_tells_its_service_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with LocalCluster(tmp_path, storage=1, replicas=1) as cluster:
            said = told_until(listener, lambda lines: lines.count("READY=1") == 3)
            for program in programs(cluster):
                assert any(line.startswith("STATUS=serving") and program.address in line for line in said)
        told_until(listener, lambda lines: lines.count("STOPPING=1") == 3)


def test_no_program_shares_its_directory(tmp_path: Path) -> None:
    """Not even before it has asked the manager for anything, or touched its store."""
    with LocalCluster(tmp_path, storage=1, replicas=1) as cluster:
        for program in programs(cluster):
            second = Program(program.module, tmp_path / f"second-{program.module}", **program.settings)
            second.settings.update(port=0)
            if program is cluster.manager:
                second.settings.update(control_port=0)
            second.launch()
            assert second.process.wait(START_S) == 1
            wanted = f"{program.settings['data_dir']} is in use by process {program.process.pid}"
            assert wanted in second.log() and '"event": "serving"' not in second.log()
            second.kill()
        with cluster.connect() as fs:
            fs.write_file("/still", b"served")
            assert fs.read_file("/still") == b"served"
        cluster.storage[1].kill()
        cluster.storage[1].start()  # the lock went with the process


def test_the_system_calls_of_the_units_are_enough(tmp_path: Path) -> None:
    """A cluster serves, and ends well, with the others refused."""
    if shutil.which("systemd-analyze") is None:
        print("skipped: systemd-analyze is not installed")
        pytest.skip("systemd-analyze is not installed")
    prefixes = {1: under("threefs-storage@.service")}
    with LocalCluster(tmp_path, storage=1, replicas=1, prefixes=prefixes) as cluster:
        cluster.meta.stop()
        meta = Program("threefs_meta", tmp_path / "filtered", under("threefs-meta.service"), **cluster.meta.settings)
        with meta.start():
            body = os.urandom(3 << 20)
            with cluster.connect() as fs:
                fs.write_file("/body", body)
                assert fs.read_file("/body") == body
            filtered(meta)
        cluster.storage[1].stop()
        filtered(cluster.storage[1].start())
    manager = Program("threefs_manager", tmp_path / "alone", under("threefs-manager.service"), port=0, control_port=0)
    with manager.start():
        filtered(manager)


def filtered(program: Program) -> None:
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    assert "\nSeccomp:\t2\n" in status, f"{program.module} ran without the filter"
