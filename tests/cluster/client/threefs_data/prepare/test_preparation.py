"""Jobs on a cluster of real processes: killed at any point, run by processes and by Dask."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from threefs_client import FileSystem
from threefs_data import Dataset
from threefs_data.prepare import Output, prepare
from threefs_data.prepare.preparation import SUFFIX
from threefs_data.prepare.tasks import SPILLS

from tests.harness.cluster import LocalCluster
from tests.harness.processes import environment
from threefs.errors import NotFound

KILLS = int(os.environ.get("THREEFS_PREPARE_KILLS", "6"))
SPLIT_BYTES, SHARD_BYTES = 20_000, 15_000
OPTIONS = ["--split-size", str(SPLIT_BYTES), "--shard-size", str(SHARD_BYTES), "--seed", "7", "--workers", "2"]
OPTIONS += ["--sequence-length", "64", "--end-of-document", "256", "--document-starts"]
ROWS = 3000


@pytest.fixture(scope="module")
def source(fs: FileSystem) -> str:
    """The path of JSON lines in the cluster."""
    fs.mkdir("/prepare-job", parents=True)
    rows = (json.dumps({"text": f"document {number} " + "." * (number % 90)}) for number in range(ROWS))
    fs.write_file("/prepare-job/rows.jsonl", "\n".join(rows).encode())
    return "threefs:///prepare-job/rows.jsonl"


#: A tokenizer that goes on when a file appears.
GATED = """
import os, time
def lengths(text):
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)
    return [len(word) for word in text.split()]
"""


def start(cluster: LocalCluster, source: str, path: str, gate: Path | None = None) -> subprocess.Popen[str]:
    """The command, in a process group of its own. With a gate it comes to no end before that file is there."""
    command = [sys.executable, "-m", "threefs_cli", "data", "prepare", source, path, *OPTIONS, "--json"]
    more = {}
    if gate is not None:
        (gate.parent / "gated.py").write_text(GATED)
        command += ["--tokenizer", "gated:lengths"]
        more = {"GATE": str(gate), "PYTHONPATH": f"{gate.parent}{os.pathsep}{environment()['PYTHONPATH']}"}
    return subprocess.Popen(
        [*command, "--address", cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment() | more,
    )


def finish(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    return json.loads(out)


def content(fs: FileSystem, path: str) -> dict[str, bytes]:
    return {entry.name: bytes(fs.read_file(f"{path}/{entry.name}")) for entry in fs.list(path)}


def wait_for_a_split(fs: FileSystem, process: "subprocess.Popen[str]", path: str) -> None:
    """Until the job has something that a later one can use, or has ended."""
    while process.poll() is None:
        with suppress(NotFound):
            if any(fs.list(f"{path}{SUFFIX}/{SPILLS}")):
                return
        time.sleep(0.01)


def wait_for_the_beginning(fs: FileSystem, process: "subprocess.Popen[str]", path: str) -> None:
    """Of a job that does not end before its gate is open, so nobody who looks late misses it."""
    while not fs.exists(f"{path}{SUFFIX}"):
        assert process.poll() is None
        time.sleep(0.01)


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def whole(cluster: LocalCluster, fs: FileSystem, source: str) -> tuple[dict[str, bytes], float]:
    """What an undisturbed command makes, and how long it takes."""
    began = time.monotonic()
    done = finish(start(cluster, source, "/prepare-job/whole"))
    assert done["documents"] == ROWS and done["shards"] > 20 and not done["reused_splits"]
    return content(fs, "/prepare-job/whole"), time.monotonic() - began


@pytest.mark.timeout(600)
def test_killed_at_any_point_it_goes_on_and_makes_the_same_bytes(
    cluster: LocalCluster, fs: FileSystem, source: str, whole: tuple[dict[str, bytes], float]
) -> None:
    """The command alone is killed: its workers must end by themselves."""
    expected, seconds = whole
    dice = random.Random(20)
    reused = killed = 0
    while killed < KILLS:
        path = f"/prepare-job/killed-{killed}"
        while True:
            process = start(cluster, source, path)
            if killed >= KILLS:
                break
            if not killed:  # the others come at any point, on a busy machine all of them before there is any work
                wait_for_a_split(fs, process, path)
            try:
                process.wait(timeout=dice.uniform(0.4, 1.0) * seconds if killed else 0.01)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                killed += 1
                assert not fs.exists(path) or content(fs, path) == expected, "it is there whole, or not at all"
                continue
            break
        out, err = process.communicate(timeout=110)
        if process.returncode:
            assert "is there already" in err, "only a command that was killed after its last step finds its own result"
        else:
            done = json.loads(out)
            reused += done["reused_splits"] + done["reused_shards"]
        assert content(fs, path) == expected
        assert not fs.exists(path + SUFFIX)
        fs.remove(path, recursive=True)
    assert reused, "no command has found anything of an earlier one"


def test_an_interrupted_command_ends_at_once_and_goes_on(
    cluster: LocalCluster, fs: FileSystem, source: str, tmp_path: Path
) -> None:
    process = start(cluster, source, "/prepare-job/interrupted", tmp_path / "gate")
    wait_for_the_beginning(fs, process, "/prepare-job/interrupted")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and not err.strip(), err
    assert not fs.exists("/prepare-job/interrupted")
    (tmp_path / "gate").touch()
    done = finish(start(cluster, source, "/prepare-job/interrupted", tmp_path / "gate"))
    assert done["documents"] == ROWS


def test_the_workers_of_a_killed_command_end(
    cluster: LocalCluster, fs: FileSystem, source: str, tmp_path: Path
) -> None:
    process = start(cluster, source, "/prepare-job/orphans", tmp_path / "gate")
    wait_for_the_beginning(fs, process, "/prepare-job/orphans")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for _ in range(600):
        if group_is_gone(process.pid):
            break
        time.sleep(0.1)
    assert group_is_gone(process.pid)


def test_a_cluster_of_dask_makes_the_same_bytes(
    cluster: LocalCluster, source: str, whole: tuple[dict[str, bytes], float]
) -> None:
    distributed: Any = pytest.importorskip("distributed", reason="distributed is not installed (make ml-venv)")
    with (
        cluster.connect() as fs,
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        distributed.Client(local) as client,
    ):
        done = prepare(
            fs,
            [source],
            "/prepare-job/dask",
            sequence_length=64,
            end_of_document=256,
            document_starts=True,
            output=Output(7, SHARD_BYTES, SPLIT_BYTES),
            executor=client.get_executor(),
        )
        assert done.documents == ROWS
        assert content(fs, "/prepare-job/dask") == whole[0]
        with Dataset(fs, "/prepare-job/dask") as dataset:
            assert len(dataset) == done.samples
