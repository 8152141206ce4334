import click
import pytest
from threefs_cli.option_types import Duration, format_duration
from threefs_client import FileSystem

from tests.harness.command_line import CommandLine


def test_a_file_is_removed_found_and_put_back(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/trash-cli/d", parents=True)
    assert threefs.ok("trash", "set", "/trash-cli", "7d") == ""
    assert threefs.json("stat", "/trash-cli")[0]["trash_s"] == 7 * 24 * 3600
    fs.write_file("/trash-cli/d/a", b"abc")
    threefs.ok("rm", "/trash-cli/d/a")
    (item,) = [item for item in threefs.json("trash", "list") if item["original"] == "/trash-cli/d/a"]
    assert "/trash-cli/d/a" in threefs.ok("trash", "list", "--user", "0")
    fs.remove("/trash-cli/d", recursive=True)
    assert "does not exist: create it" in threefs.error("trash", "restore", item["path"])
    assert threefs.ok("trash", "restore", item["path"], "--parents") == "/trash-cli/d/a\n"
    assert fs.read_file("/trash-cli/d/a") == b"abc"
    threefs.ok("trash", "set", "/trash-cli/d", "off")
    fs.remove("/trash-cli/d/a")
    threefs.ok("trash", "set", "/trash-cli", "--as-above")
    assert fs.stat("/trash-cli").trash_s is None
    assert threefs.json("trash", "empty", "--user", "4000000000") == {"removed": 0}


def test_restore_goes_on_after_what_cannot_be_put_back(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/trash-all")
    fs.trash.set("/trash-all", 3600)
    for name in "abc":
        fs.write_file(f"/trash-all/{name}", name.encode())
        fs.remove(f"/trash-all/{name}")
    kept = {item.original: item.path for item in fs.trash.list()}
    fs.write_file("/trash-all/b", b"new")
    result = threefs.run("trash", "restore", *(kept[f"/trash-all/{name}"] for name in "abc"))
    assert result.exit_code == 1 and result.stdout == "/trash-all/a\n/trash-all/c\n"
    assert result.stderr == "Error: /trash-all/b exists already: restore it to another path\n"
    assert fs.read_file("/trash-all/c") == b"c"


def test_what_somebody_has_made_in_the_place_of_the_trash_is_not_emptied(threefs: CommandLine, fs: FileSystem) -> None:
    if fs.exists("/.trash"):
        fs.remove("/.trash", recursive=True)
    try:
        for path in ("/.trash/7", "/not-trash"):
            fs.mkdir(path, parents=True)
            fs.write_file(f"{path}/a", b"kept")
        fs.symlink("/not-trash", "/.trash/8")
        assert threefs.json("trash", "list") == []
        assert threefs.json("trash", "empty") == {"removed": 0}
        assert fs.read_file("/.trash/7/a") == fs.read_file("/not-trash/a") == b"kept"
        fs.remove("/.trash", recursive=True)
        fs.write_file("/.trash", b"a file")
        assert threefs.json("trash", "list") == []
        assert threefs.json("trash", "empty") == threefs.json("trash", "empty", "--user", "7") == {"removed": 0}
    finally:
        fs.remove("/.trash", recursive=True)


def test_what_makes_no_sense(threefs: CommandLine) -> None:
    for words in ("set /", "set / 7d --as-above", "set / soon", "restore a b --to c", "restore"):
        assert threefs.run("trash", *words.split()).exit_code == 2


@pytest.mark.parametrize(("text", "value"), [("off", 0), ("0s", 0), ("90s", 90), ("2h", 7200), ("4W", 4 * 7 * 86400)])
def test_durations(text: str, value: int) -> None:
    assert Duration().convert(text, None, None) == value


@pytest.mark.parametrize("text", ["", "7", "-1d", "1.5h", "d", "1y"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (86400, "24h"), (7 * 86400, "7d")]
)
def test_times_are_shown_in_a_fitting_unit(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
