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
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if PYTHON.search(page.read_text(encoding="utf-8"))
]
#: Libraries that have no types, or are not installed everywhere. Ours have types, and are installed.
CONFIGURATION = "[mypy]\n[mypy-fsspec.*,torch.*]\nignore_missing_imports = True\nfollow_imports = skip\n"


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


def test_every_package_for_users_has_an_example() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    # threefs_fsspec is used through fsspec
    for name in ("threefs_client", "threefs_data", "threefs_checkpoint", "threefs_torch"):
        assert f"import {name}" in text or f"from {name}" in text, name


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_have_types(page: str, python: Path, tmp_path: Path) -> None:
    parts = PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))
    assert parts
    script = tmp_path / "example.py"
    script.write_text("\n".join(parts), encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(CONFIGURATION, encoding="utf-8")
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]
    known = ["--cache-dir", str(python.parent / "mypy")]  # what the pages import is the same for all of them
    done = subprocess.run([*check, *known, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
