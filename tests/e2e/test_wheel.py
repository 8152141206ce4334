"""What a user's type checker says of the examples, with threefs installed from its wheel: nothing."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/python.md",
    "docs/datasets.md",
    "docs/preparing-data.md",
    "docs/checkpoints.md",
)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and what it depends on from the environment of the tests."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(ROOT)]
    subprocess.run(build, check=True, timeout=110)
    (wheel,) = directory.glob("threefs-*.whl")
    venv.create(directory / "venv", with_pip=False)
    (packages,) = (directory / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return directory / "venv" / "bin" / "python"


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_have_types(page: str, python: Path, tmp_path: Path) -> None:
    parts = PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))
    assert parts
    script = tmp_path / "example.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), str(script)]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
