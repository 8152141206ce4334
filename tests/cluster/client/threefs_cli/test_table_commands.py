"""Tables are made, listed and chosen by the command line, in a cluster of the test's own."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import threefs_client
from click.testing import CliRunner
from threefs_cli.main import main

WAIT_S = 120.0
BODY = bytes(range(256)) * 2048


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("tables") / "cluster"
    run("up", "--dir", str(place), "--storage", "3", "--replicas", "3")
    yield place
    CliRunner().invoke(main, ["down", "--dir", str(place)])


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def in_json(directory: Path, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--dir", str(directory), "--json"))


def put(directory: Path, fs: threefs_client.FileSystem, path: str) -> int:
    """Write a file; the table that it lies on."""
    with fs.open(path, "wb") as file:
        file.write(BODY)
    return int(in_json(directory, "stat", path)[0]["table_id"])


def test_new_files_take_a_new_table_and_old_ones_stay(directory: Path) -> None:
    place = ("--dir", str(directory))
    state = json.loads((directory / "cluster.json").read_text())
    with threefs_client.connect(state["address"], key_file=directory / "key") as fs:
        assert put(directory, fs, "/old") == 1
        dry = in_json(directory, "table", "create", "--replicas", "2", "--targets-per-disk", "2", "--dry-run")
        assert in_json(directory, "table", "ls")["tables"][1:] == []
        made = in_json(directory, "table", "create", "--replicas", "2", "--targets-per-disk", "2")
        assert made == {**dry, "dry_run": False} and made["targets"] == 6 and len(made["chains"]) == 3
        assert put(directory, fs, "/still-old") == 1
        dry = run("table", "set-default", "2", "--dry-run", *place)
        assert dry == "new files would take table 2; now they take table 1\n"
        assert in_json(directory, "table", "ls")["default_table"] == 1
        assert "new files take table 2" in run("table", "set-default", "2", *place)
        listed = in_json(directory, "table", "ls")
        assert listed["default_table"] == 2
        assert [(one["replicas"], one["ready_chains"]) for one in listed["tables"]] == [(3, 3), (2, 3)]
        assert put(directory, fs, "/new") == 2
        fs.write_file("/whole", BODY)
        assert in_json(directory, "stat", "/whole")[0]["table_id"] == 2
        run("mkdir", "--table", "1", "/first", *place)
        assert "new files in /first/below" not in run("mkdir", "/first/below", *place)
        assert put(directory, fs, "/first/below/file") == 1, "a directory inherits the table"
        assert "new files in /first would take table 2" in run(
            "table", "set-default", "2", "/first", "--dry-run", *place
        )
        assert put(directory, fs, "/first/still") == 1
        run("table", "set-default", "2", "/first", *place)
        assert put(directory, fs, "/first/file") == 2
        for path in ("/old", "/still-old", "/new", "/whole", "/first/below/file", "/first/file"):
            assert fs.read_file(path) == BODY
    shown = run("table", "ls", *place)
    assert "default" in shown and "new files" in shown
    assert "clean" in run("fsck", *place)


def test_a_table_that_is_not_there_is_refused(directory: Path) -> None:
    place = ("--dir", str(directory))
    for arguments in (
        ("set-default", "9"),
        ("set-default", "9", "/"),
        ("set-default", "9", "--dry-run"),
        ("set-default", "9", "/", "--dry-run"),
    ):
        result = CliRunner().invoke(main, ["table", *arguments, *place])
        assert result.exit_code != 0 and "chain table 9 does not exist" in result.output
    result = CliRunner().invoke(main, ["table", "create", "--replicas", "4", *place])
    assert result.exit_code == 2 and "4 replicas need 4 storage nodes" in result.output


def test_the_copies_of_a_table_change_while_it_is_read(directory: Path) -> None:
    place = ("--dir", str(directory))
    assert "3 chains would lose a copy" in run("table", "set-replicas", "1", "2", "--dry-run", *place)
    state = json.loads((directory / "cluster.json").read_text())
    with threefs_client.connect(state["address"], key_file=directory / "key") as fs:
        fs.write_file("/table-1", BODY)
        for copies in (2, 1, 3):
            found = in_json(directory, "table", "set-replicas", "1", str(copies))
            assert (found["removed"] > 0) is (copies < 3) and (found["added"] > 0) is (copies == 3)
            wait_for_copies(directory, copies)
            assert fs.read_file("/table-1") == BODY
            fs.write_file("/table-1", BODY)
    result = CliRunner().invoke(main, ["table", "set-replicas", "1", "4", *place])
    assert result.exit_code == 2 and "add nodes first" in result.output
    assert "clean" in run("fsck", *place)


def wait_for_copies(directory: Path, copies: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        status = in_json(directory, "status")
        chains = in_json(directory, "table", "ls")["tables"][0]["chains"]
        found = [chain for chain in status["chains"] if chain["chain_id"] in chains]
        if not status["moves"] and {(len(one["members"]), one["serving"]) for one in found} == {(copies, copies)}:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
