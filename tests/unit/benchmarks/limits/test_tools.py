"""The plain programs, run for a moment: what they say is consistent, and wrong bytes are noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.limits import tools
from benchmarks.measurements import MIB, LeftOutError

LANGUAGES = [
    pytest.param("c", marks=pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")),
    "python",
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (2 * MIB // 256))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("family", ["tcp", "unix"])
@pytest.mark.parametrize(("pieces", "length"), [(1, MIB), (85, 4096), (1, 4096)])
def test_reads_of_every_shape_are_counted(
    language: str, family: str, pieces: int, length: int, file: Path, tmp_path: Path
) -> None:
    found = tools.work_equal(language, family, file, tmp_path, seconds=0.05, pieces=pieces, length=length, depth=3)
    assert found.amount > 0 and found.amount % (tools.SERVERS * pieces * length) == 0
    assert found.seconds > 0 and found.cpu_s > 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_file_that_ends_too_early_is_an_error(language: str, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(OSError, match="ended with"):
        tools.work_equal(language, "unix", path, tmp_path, seconds=0.05, pieces=2, length=4096, depth=1)


def test_small_messages_are_counted(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    found = tools.messages(tmp_path, seconds=0.05, length=64, depth=4)
    assert found.amount > 0 and found.amount % 2 == 0 and found.cpu_s > 0


def test_without_a_compiler_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeftOutError, match="gcc is not installed"):
        tools.compile_tool("messages", tmp_path)


def test_a_wrong_call_says_where_the_words_are_explained() -> None:
    command = [sys.executable, "-m", "benchmarks.limits.work_equal", "read"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(tools.__file__).parents[2])
    assert done.returncode == 1 and "head of the source" in done.stderr
