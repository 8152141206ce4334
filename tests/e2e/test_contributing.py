"""The examples of CONTRIBUTING.md are tests of each kind, and pass."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import ROOT, environment

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"def (test_\w+)")
KIND = re.compile(r"^\| (\w+) \| `tests/", re.MULTILINE)

EXAMPLES = {TEST.findall(example)[0]: example for example in EXAMPLE.findall(PAGE)}


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(EXAMPLES[name])
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    plugins = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    own = ["--basetemp", str(tmp_path / "made"), str(file)]
    done = subprocess.run(
        [*command, *plugins, *own], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_has_an_example() -> None:
    kinds = KIND.findall(PAGE)
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))}
    assert set(kinds) == folders - {"bench", "harness"}
    sections = {section.lower() for section in re.findall(r"^\*\*(\w+)\.\*\*", PAGE, re.MULTILINE)}
    assert sections == set(kinds)
