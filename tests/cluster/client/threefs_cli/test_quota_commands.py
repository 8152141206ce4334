"""Quotas, by the command line and real services."""

import time

import pytest
from threefs_client import FileSystem

from tests.harness.command_line import CommandLine
from threefs.errors import QuotaExceeded


def wait_settled(threefs: CommandLine, of: str, used_bytes: int, used_inodes: int) -> None:
    """Until everything is counted, and stays so. The meta service adds up what was charged a while after the call, on a
    busy machine some seconds."""
    times = 0
    deadline = time.monotonic() + 60
    while times < 2:
        quota = threefs.json("quota", "show", of)
        is_right = not quota["counting"] and (quota["used_bytes"], quota["used_inodes"]) == (used_bytes, used_inodes)
        times = times + 1 if is_right else 0
        assert time.monotonic() < deadline, quota
        time.sleep(1.0)


def test_a_tree_has_a_limit_until_it_is_cleared(threefs: CommandLine, fs: FileSystem) -> None:
    fs.mkdir("/quota/tree", parents=True)
    fs.write_file("/quota/tree/before", b"x" * 1000)
    assert threefs.json("quota", "set", "/quota/tree", "--bytes", "4k")["limit_bytes"] == 4096
    wait_settled(threefs, "/quota/tree", 1000, 2)
    with pytest.raises(QuotaExceeded, match="/quota/tree has 1000 of at most 4096 bytes, and 4000 more do not fit"):
        fs.write_file("/quota/tree/large", b"x" * 4000)
    assert not fs.exists("/quota/tree/large"), "a file that is written whole is there whole or not at all"
    fs.write_file("/quota/tree/full", b"x" * 3096)
    wait_settled(threefs, "/quota/tree/full", 4096, 3)
    with pytest.raises(QuotaExceeded):
        fs.write_file("/quota/tree/more", b"x")
    fs.write_file("/quota/outside", b"x")
    assert "/quota/tree" in threefs.ok("quota", "show")
    threefs.ok("quota", "clear", "/quota/tree")
    assert threefs.json("quota", "show", "/quota/tree") is None
    for _ in range(60):  # until the meta service has looked again
        try:
            fs.write_file("/quota/tree/more", b"x")
            break
        except QuotaExceeded:
            time.sleep(1.0)
    assert fs.read_file("/quota/tree/more") == b"x"


def test_a_limit_that_is_not_given_stays(threefs: CommandLine, fs: FileSystem) -> None:
    """It was removed without a word."""
    fs.mkdir("/limits/below", parents=True)
    fs.symlink("/limits", "/link-to-limits")
    for of in (["/limits"], ["--user", "4321"]):
        for options, expected in (
            (["--bytes", "4k"], (4096, 0)),
            (["--inodes", "5"], (4096, 5)),
            (["--bytes", "8k"], (8192, 5)),
            ([], (8192, 5)),
            (["--inodes", "0"], (8192, 0)),
            (["--inodes", "7", "--bytes", "0"], (0, 7)),
        ):
            found = threefs.json("quota", "set", *of, *options)
            assert (found["limit_bytes"], found["limit_inodes"]) == expected, (of, options)
    assert threefs.json("quota", "set", "/link-to-limits", "--bytes", "1k")["limit_inodes"] == 7, "the same directory"
    below = threefs.json("quota", "set", "/limits/below", "--bytes", "2k")
    assert (below["path"], below["limit_bytes"], below["limit_inodes"]) == ("/limits/below", 2048, 0), "one of its own"
    for of in (["/limits/below"], ["/limits"], ["--user", "4321"]):
        threefs.ok("quota", "clear", *of)


def test_invalid_quotas_are_refused(threefs: CommandLine) -> None:
    assert threefs.run("quota", "set", "--bytes", "1").exit_code == 2
    assert threefs.run("quota", "set", "/", "--user", "1").exit_code == 2
    assert threefs.run("quota", "set", "/", "--bytes", "much").exit_code == 2
