import pytest
from threefs_cli import cluster_selector, fsck_command
from threefs_fsck import Finding, Report

from tests.harness.command_line import CommandLine


def test_a_clean_cluster(threefs: CommandLine) -> None:
    assert threefs.ok("fsck").endswith(": clean\n")
    found = threefs.json("fsck", "--repair")
    assert found["findings"] == [] and found["exit_code"] == 0 and found["inodes"] > 0


def test_what_is_shown() -> None:
    report = Report([Finding("wrong_links", "inode 7 has\n 2", 7, repaired=True), Finding("loop", "y", 8)], 5, 6, 7)
    assert list(fsck_command.lines(report)) == [
        "repaired: wrong links: inode 7 has\\n 2",
        "wrong: loop: y",
        "5 entries, 6 inodes, 7 chunks: 2 findings",
    ]
    assert fsck_command.describe(report)["exit_code"] == 4
    assert fsck_command.describe(report)["kinds"] == {"wrong_links": 1, "loop": 1}
    report = Report(degraded_chains=[3, 4])
    assert list(fsck_command.lines(report)) == [
        "2 chains lack copies: only the targets that serve were checked (`threefs status` shows which do not)",
        "0 entries, 0 inodes, 0 chunks: clean",
    ]
    assert fsck_command.describe(report)["degraded_chains"] == [3, 4] and report.exit_code == 0
    report = Report(complete=False)
    assert next(fsck_command.lines(report)).startswith("there are more")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--address", "threefs://127.0.0.1:1"), 8),
        (("--address", "nonsense://"), 16),
        (("--what",), 16),
        (("--address", "threefs://127.0.0.1:1", "--dir", "/nowhere"), 16),
    ],
)
def test_exit_codes_when_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int
) -> None:
    from click.testing import CliRunner
    from threefs_cli.main import main

    monkeypatch.setattr(cluster_selector, "CONNECT_S", 1.0)  # nobody is there
    assert CliRunner().invoke(main, ["fsck", *arguments]).exit_code == code
