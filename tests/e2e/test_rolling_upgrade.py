"""Processes of an earlier state of threefs and of this tree serve one cluster, whichever role is upgraded first."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.cluster import LocalCluster
from tests.harness.processes import ROOT, Program, environment

#: The commit that a rolling upgrade begins from: that of the previous release, once one has a tag. Its packages are
#: taken from the history of this repository.
PREVIOUS = "cf6b7160bd83ba3b5fe9a2567e590c84c019c37d"
_TURN_S = 120.0

#: A client of either release. Until its input ends it makes changes of every kind, and checks what it has written. A
#: line of output says that a turn is done.
LOAD = """
import sys, threading
import threefs_client
address, home = sys.argv[1:]
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
expected, turn = {}, 0
with threefs_client.connect(address, timeout_s=90.0) as fs:
    fs.mkdir(home)
    while not stop.wait(0.3):
        for number in range(4):
            path, content = f"{home}/{turn}-{number}", bytes([turn % 251, number]) * (30_000 << number)
            fs.write_file(path, content)
            with fs.open(path, "r+b") as file:
                file.seek(7 * number)
                file.write(b"changed")
            expected[path] = content[: 7 * number] + b"changed" + content[7 * number + 7 :]
        with fs.open(f"{home}/{turn}-3", "r+b") as file:  # near each other: one change, or several that share messages
            pieces = [(file, 1000 * at, bytes([at, turn % 251]) * (50 if at % 4 else 480)) for at in range(1, 60)]
            fs.write_batch(pieces)
        for _, offset, piece in pieces:
            whole = expected[f"{home}/{turn}-3"]
            expected[f"{home}/{turn}-3"] = whole[:offset] + piece + whole[offset + len(piece) :]
        with fs.open(f"{home}/{turn}-0", "ab") as file:
            file.write(b"appended")
        expected[f"{home}/{turn}-0"] += b"appended"
        fs.rename(f"{home}/{turn}-1", f"{home}/{turn}-moved")
        expected[f"{home}/{turn}-moved"] = expected.pop(f"{home}/{turn}-1")
        fs.remove(f"{home}/{turn}-2")
        del expected[f"{home}/{turn}-2"]
        for path in list(expected)[:-12]:
            fs.remove(path)
            del expected[path]
        assert {entry.name for entry in fs.list(home)} == {path.rsplit("/", 1)[1] for path in expected}
        for path, content in expected.items():
            assert fs.read_file(path) == content, path
        turn += 1
        print(turn, flush=True)
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the previous release."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", PREVIOUS], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history of this repository does not have {PREVIOUS[:8]}, the previous release")
    tree = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "--extract", "--directory", str(tree)], input=archive.stdout, check=True)
    # Its generated code may need another protobuf than the one that is installed.
    protos = [str(path.relative_to(tree)) for path in tree.glob("proto/threefs/wire/*.proto")]
    generate = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", "--python_out=.", *protos]
    subprocess.run(generate, cwd=tree, check=True)
    return tree


def path_of(tree: Path) -> str:
    return os.pathsep.join(str(part) for part in (tree, tree / "services", tree / "client"))


class Client:
    def __init__(self, tree: Path, address: str, home: str) -> None:
        self._turns = 0
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOAD, address, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env={**environment(), "PYTHONPATH": path_of(tree)},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self._turns += 1

    def await_whole_turn(self) -> None:
        """Wait until it has made a turn that it began after this call."""
        wanted, deadline = self._turns + 2, time.monotonic() + _TURN_S
        while self._turns < wanted:
            assert self._process.poll() is None, "a client has failed, and says why in its output"
            assert time.monotonic() < deadline, "a client stands still"
            time.sleep(0.02)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(timeout=_TURN_S) == 0
        finally:
            self._process.kill()
            self._reader.join()
            self._process.stdout.close()


@contextmanager
def clients(cluster: LocalCluster, trees: dict[str, Path]) -> Iterator[list[Client]]:
    found = [Client(tree, cluster.address, f"/{name}") for name, tree in trees.items()]
    try:
        yield found
    finally:
        for client in found:
            client.end()


def upgrade(cluster: LocalCluster, role: str) -> None:
    programs = {"manager": [cluster.manager], "meta": [cluster.meta], "storage": [*cluster.storage.values()]}
    for program in programs.get(role, []):
        restart(program)
        cluster.wait_whole()


def restart(program: Program) -> None:
    """With the code of this tree, at the same addresses."""
    program.stop()
    program.prefix = []
    program.start()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "order", [("manager", "meta", "storage"), ("storage", "manager", "meta"), ("meta", "storage", "manager")]
)
def test_each_role_may_be_upgraded_first(order: tuple[str, ...], previous: Path, tmp_path: Path) -> None:
    """Clients of both releases change and read files all the time, so clients are upgraded first and last, too."""
    old = ["env", f"--chdir={previous}", f"PYTHONPATH={path_of(previous)}"]
    with (
        LocalCluster(tmp_path, prefix=old, lease_s=3.0, same_ports=True) as cluster,
        clients(cluster, {"old": previous, "new": ROOT}) as load,
    ):
        for role in ("", *order):
            upgrade(cluster, role)
            for client in load:
                client.await_whole_turn()
