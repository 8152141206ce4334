import errno
import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from threefs_cli.main import Commands, main

from threefs.errors import InvalidArgument, NotFound

NAMES = [
    "up",
    "down",
    "status",
    "health",
    "doctor",
    "ls",
    "stat",
    "put",
    "get",
    "cat",
    "chain",
    "ckpt",
    "chunk",
    "config",
    "mkdir",
    "rm",
    "mv",
    "ln",
    "du",
    "df",
    "data",
    "demo",
    "disk",
    "fsck",
    "init",
    "key",
    "manager",
    "meta",
    "mount",
    "moves",
    "node",
    "ps",
    "quota",
    "rebalance",
    "backup",
    "bench",
    "restore",
    "scrub",
    "table",
    "target",
    "trash",
    "umount",
]


def test_all_commands_are_there_and_explain_themselves() -> None:
    assert sorted(main.commands) == sorted(NAMES)
    for name, command in main.commands.items():
        parts = [[name, part] for part in command.commands] if isinstance(command, click.Group) else [[name]]
        for words in parts:
            result = CliRunner().invoke(main, [*words, "--help"])
            assert result.exit_code == 0, words
            assert "--json" in result.output or name == "umount", words  # which prints nothing
        assert (command.help or "").strip(), name
    assert "threefs put -r" in CliRunner().invoke(main, ["--help"]).output


def test_the_list_has_all_commands_in_the_order_of_their_names() -> None:
    listed = CliRunner().invoke(main, ["--help"], terminal_width=80).output.partition("Commands:\n")[2]
    lines = [line for line in listed.partition("\n\n")[0].splitlines() if not line.startswith("   ")]
    assert [line.split()[0] for line in lines] == sorted(NAMES) and all(len(line) < 80 for line in lines)


def test_the_shell_completes_names_and_options() -> None:
    complete = ShellComplete(main, {}, "threefs", "_THREEFS_COMPLETE").get_completions
    assert [item.value for item in complete([], "ch")] == ["chain", "chunk"]
    assert complete([], "ls")[0].help == "List directories; a file lists itself."
    assert {"--help", "--version"} <= {item.value for item in complete([], "--")}
    assert "--recursive" in {item.value for item in complete(["put"], "--r")}


def test_a_misspelt_name_is_answered_with_what_may_be_meant() -> None:
    result = CliRunner().invoke(main, ["stauts"])
    assert result.exit_code == 2 and "Did you mean" in result.stderr and "'status'" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotFound("/x: no such file"), 1, "Error: /x: no such file\n"),
        (NotFound("/\x1b[31m\n\udcff: gone"), 1, "Error: /\\x1b[31m\\n\\udcff: gone\n"),
        (InvalidArgument("no port"), 2, "Error: no port\n"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "there"), 1, "Error: there: No such file"),
    ],
)
def test_an_error_is_one_line(error: BaseException, code: int, said: str) -> None:
    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise error

    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == code
    assert result.stderr.lstrip("\n").startswith(said) and result.stderr.strip().count("\n") == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_that_cannot_be_printed_is_an_error_in_one_line(unbuffered: str) -> None:
    """What was buffered was tried again at the exit, and told a second time."""
    words, env = [sys.executable, "-m", "threefs_cli", "--help"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=env)
    assert (done.returncode, done.stderr) == (1, b"Error: No space left on device\n")


def test_ctrl_c_ends_a_command_quietly() -> None:
    @click.group(cls=Commands)
    def group() -> None: ...

    @group.command()
    def wait() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, ["wait"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["ls", "--no-such-option"], ["mv", "/a"], ["rm"]])
def test_bad_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_no_cluster_at_an_address_says_what_to_start() -> None:
    result = CliRunner().invoke(main, ["ls", "--address", "threefs://127.0.0.1:nowhere"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "port 'nowhere'" in result.stderr
