"""What the counting programs print is judged rightly, and one of them counts alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import locker
from tests.harness.processes import environment


@pytest.mark.parametrize(
    ("lines", "last", "wrong"),
    [
        (["began 1", "told 1", "began 2", "told 2"], 2, ""),
        (["began 1", "told 1", "began 2", "failed Input/output error"], 1, ""),
        (["began 1", "told 1", "began 2", "failed Input/output error"], 2, ""),
        (["began 1", "told 1", "began 1", "told 1"], 1, "2 holders"),
        (["began 1", "told 1", "began 2", "told 2"], 1, "the file holds 1"),
        (["began 1", "told 1"], 7, "nobody has written"),
    ],
)
def test_verdicts(lines: list[str], last: int, wrong: str) -> None:
    found = locker.judge(lines, last)
    assert wrong in found[0] if wrong else not found


def test_it_counts(tmp_path: Path) -> None:
    (tmp_path / "count").touch()
    command = [sys.executable, "-m", "tests.chaos.locker", str(tmp_path / "count"), str(tmp_path / "stop")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline().strip() for _ in range(10)]
        (tmp_path / "stop").touch()
        lines += program.stdout.read().splitlines()
    assert not locker.judge(lines, int((tmp_path / "count").read_bytes()))
    assert [line.split()[:2] for line in lines[:2]] == [["began", "1"], ["told", "1"]]
