import json

import pytest
from threefs_client import FileSystem

from tests.harness.command_line import CommandLine


@pytest.fixture(scope="module", autouse=True)
def tree(fs: FileSystem) -> None:
    fs.mkdir("/look/below", parents=True)
    fs.write_file("/look/a", b"12345")
    fs.write_file("/look/below/b", b"1")
    fs.symlink("a", "/look/z")


def test_ls(threefs: CommandLine) -> None:
    assert threefs.ok("ls", "/look") == "a\nbelow/\nz\n"
    assert threefs.ok("ls", "/look/below", "/look/a") == "/look/below:\nb\n\n/look/a:\n/look/a\n"
    assert "look/\n" in threefs.ok("ls")
    long = threefs.ok("ls", "-l", "/look").splitlines()
    assert [line[0] for line in long] == ["-", "d", "l"]
    assert long[2].endswith(" z -> a")
    rows = threefs.json("ls", "/look")
    assert [(row["path"], row["kind"]) for row in rows] == [
        ("/look/a", "file"),
        ("/look/below", "directory"),
        ("/look/z", "symlink"),
    ]
    assert [row["path"] for row in threefs.json("ls", "/look/a", "look/below", "/")][:2] == ["/look/a", "look/below/b"]
    assert threefs.error("ls", "/look/none").startswith("Error: ")


def test_stat(threefs: CommandLine) -> None:
    (row,) = threefs.json("stat", "/look/z")
    assert (row["kind"], row["target"]) == ("symlink", "a")
    assert "length_bytes  5" in threefs.ok("stat", "/look/a")


def test_du(threefs: CommandLine) -> None:
    (row,) = threefs.json("du", "/look")
    assert (row["files"], row["directories"], row["symlinks"], row["length_bytes"]) == (2, 2, 1, 6)
    assert "2 files, 2 directories  /look" in threefs.ok("du", "/look")


@pytest.mark.parametrize("command", ["ls", "stat", "du", "cat"])
def test_a_path_that_is_missing_keeps_the_others_from_nothing(threefs: CommandLine, command: str) -> None:
    result = threefs.run(command, "--json", "/look/none", "/look/a", "/look/nothing")
    assert result.exit_code == 1 and [row["path"] for row in json.loads(result.stdout)] == ["/look/a"]
    first, second = result.stderr.splitlines()
    assert "/look/none" in first and "/look/nothing" in second
    shown = threefs.run(command, "/look/none", "/look/a")
    assert shown.exit_code == 1 and shown.stdout and shown.stderr.count("/look/none") == 1


def test_df(threefs: CommandLine) -> None:
    found = threefs.json("df")
    assert found["replicas"] == 3 and found["capacity_bytes"] >= found["free_bytes"] > 0
    assert "replicas" in threefs.ok("df")


def test_an_entry_with_the_name_of_its_directory_lies_in_it(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/twice/twice", parents=True)
    assert [(row["name"], row["path"]) for row in threefs.json("ls", "twice")] == [("twice", "twice/twice")]
