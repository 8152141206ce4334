"""A cluster of its own that grows and shrinks while a file is written and read."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import threefs_client
from click.testing import CliRunner
from threefs_cli.local_cluster import LocalCluster
from threefs_cli.main import main

WAIT_S = 120.0
CHUNK = 64 << 10


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "cluster"
    run("up", "--dir", str(place), "--storage", "3", "--replicas", "2")
    yield place
    CliRunner().invoke(main, ["down", "--dir", str(place)])


def rows(directory: Path) -> dict[int, dict[str, Any]]:
    return {row["node_id"]: row for row in listed(directory)["nodes"]}


def listed(directory: Path) -> Any:
    return json.loads(run("node", "ls", "--dir", str(directory), "--json"))


def wait(directory: Path, reached: Callable[[dict[int, dict[str, Any]]], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not (reached(rows(directory)) and not listed(directory)["moves"]):
        assert time.monotonic() < deadline, listed(directory)
        time.sleep(0.2)


class Writer:
    """Overwrites chunks of one file in turn, and reads each back, until it is stopped."""

    def __init__(self, url: str, key_file: Path) -> None:
        self.errors: list[BaseException] = []
        self.rounds = 0
        self.content: dict[int, bytes] = {}
        self._stop = threading.Event()
        self._fs = threefs_client.connect(url, key_file=key_file)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._fs.open("/written", "w+b") as file:
                while not self._stop.is_set():
                    number, self.rounds = self.rounds % 40, self.rounds + 1
                    piece = self.rounds.to_bytes(8, "big") * (CHUNK // 8)
                    file.seek(number * CHUNK)
                    file.write(piece)
                    file.flush()
                    self.content[number] = piece
                    file.seek(number * CHUNK)
                    assert file.read(CHUNK) == piece
        except BaseException as error:
            self.errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        with self._fs.open("/written", "rb") as file:
            for number, piece in sorted(self.content.items()):
                file.seek(number * CHUNK)
                assert file.read(CHUNK) == piece
        self._fs.close()


def stores(directory: Path, node: int) -> list[str]:
    return sorted(path.name for path in (directory / f"storage-{node}" / "data").glob("target-*"))


def test_a_cluster_grows_and_a_node_leaves_while_it_serves(directory: Path) -> None:
    state = json.loads((directory / "cluster.json").read_text())
    writer = Writer(state["address"], directory / "key")
    try:
        assert (
            "targets move to storage-4"
            in CliRunner().invoke(main, ["up", "--dir", str(directory), "--storage", "4"]).output
        )
        wait(directory, lambda found: sorted(row["targets"] for row in found.values()) == [1, 1, 2, 2])
        assert len(stores(directory, 4)) == 1
        planned = json.loads(run("node", "drain", "1", "--dir", str(directory), "--dry-run", "--json"))
        assert planned["moves"] and rows(directory)[1]["state"] == "up"
        run("node", "drain", "1", "--dir", str(directory))
        wait(directory, lambda found: found[1]["state"] == "drained")
        deadline = time.monotonic() + WAIT_S
        while stores(directory, 1):  # what has moved away is deleted
            assert time.monotonic() < deadline
            time.sleep(0.2)
        wait(directory, lambda found: found[1]["free_bytes"] is None)  # from its next heartbeat on: unknown
        assert rows(directory)[2]["free_bytes"]
        while writer.rounds <= 40 and not writer.errors:  # so that each piece was written again
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        writer.stop()
    assert not writer.errors
    assert "would leave" in run("node", "remove", "1", "--dry-run", "--dir", str(directory))
    assert set(rows(directory)) == {1, 2, 3, 4}
    assert "is no longer part" in run("node", "remove", "1", "--dir", str(directory))
    assert set(rows(directory)) == {2, 3, 4}
    programs = json.loads(run("ps", "--dir", str(directory), "--json"))["programs"]  # all of them run
    assert "storage-1" not in {program["name"] for program in programs}
    assert "everything runs" in run("up", "--dry-run", "--dir", str(directory))
    run("up", "--dir", str(directory))
    assert set(rows(directory)) == {2, 3, 4}, "it has not come back"
    run("status", "--dir", str(directory))
    assert "would start storage-5" in run("up", "--storage", "4", "--dry-run", "--dir", str(directory))
    assert "clean" in run("fsck", "--dir", str(directory))


def test_up_does_not_bring_a_node_back_that_was_removed_by_the_address(directory: Path) -> None:
    """The command did not know the directory."""
    state = json.loads((directory / "cluster.json").read_text())
    run("up", "--storage", "4", "--dir", str(directory))
    added = max(rows(directory))
    run("node", "drain", str(added), "--dir", str(directory))
    wait(directory, lambda found: found[added]["state"] == "drained")
    key = ("--key-file", str(directory / "key"))
    run("node", "remove", str(added), "--address", state["address"], *key)
    deadline = time.monotonic() + WAIT_S
    while "does not run" not in CliRunner().invoke(main, ["ps", "--dir", str(directory)]).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    result = CliRunner().invoke(main, ["up", "--dir", str(directory)])
    assert result.exit_code == 0 and f"storage-{added} has left the cluster" in result.output
    assert added not in rows(directory)
    run("status", "--dir", str(directory))


def test_new_storage_processes_are_filled_though_the_first_try_was_cut_short(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(rows(directory))

    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    larger = ["up", "--storage", str(before + 1), "--dir", str(directory)]
    with monkeypatch.context() as patch:
        patch.setattr(LocalCluster, "_await_chains", interrupted)
        assert CliRunner().invoke(main, larger).exit_code != 0
    assert "targets move to storage-" in CliRunner().invoke(main, larger).output
    wait(directory, lambda found: len(found) == before + 1 and all(row["targets"] for row in found.values()))


def test_a_node_that_is_needed_does_not_leave(directory: Path) -> None:
    for node in ("1", "2"):
        result = CliRunner().invoke(main, ["node", "remove", node, "--dir", str(directory)])
        assert result.exit_code != 0 and "drain" in result.output
        dry = CliRunner().invoke(main, ["node", "remove", node, "--dry-run", "--dir", str(directory)])
        assert (dry.exit_code, dry.output) == (result.exit_code, result.output)
    assert "node 4, 5 would join" in run("node", "add", "4", "5", "--dry-run", "--dir", str(directory))
    known = ("--domain", "storage-1", "--dry-run", "--json", "--dir", str(directory))
    added = json.loads(run("node", "add", "1", *known))
    assert added == {"added": [1], "new": [], "dry_run": True}
    assert set(rows(directory)) == {1, 2, 3}
    run("node", "drain", "1", "--dir", str(directory))
    result = CliRunner().invoke(main, ["node", "drain", "2", "--dir", str(directory)])
    assert result.exit_code != 0 and "add nodes first" in result.output
    assert "would keep" in run("node", "undrain", "1", "--dry-run", "--dir", str(directory))
    assert rows(directory)[1]["state"] in ("draining", "drained")
    run("node", "undrain", "1", "--dir", str(directory))
    wait(directory, lambda found: found[1]["state"] == "up")
