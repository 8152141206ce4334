"""The Python that `make venv` takes."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "make_venv.py"
RUNNING = Path(sys.executable)


@pytest.fixture(scope="module")
def make_venv() -> ModuleType:
    found = importlib.util.spec_from_file_location("make_venv", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def program(path: Path, code: int) -> Path:
    path.write_text(f"#!/bin/sh\nexit {code}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def test_that_of_the_system_if_ours_was_built_without_profiles(make_venv: ModuleType, tmp_path: Path) -> None:
    system = program(tmp_path / "python", 0)
    assert make_venv.quickest(RUNNING, "'--prefix=/somewhere'", system) == system
    assert make_venv.quickest(RUNNING, "'--enable-optimizations' '--with-lto'", system) == RUNNING


def test_not_one_that_lacks_something(make_venv: ModuleType, tmp_path: Path) -> None:
    assert make_venv.quickest(RUNNING, "", tmp_path / "absent") == RUNNING
    assert make_venv.quickest(RUNNING, "", program(tmp_path / "python", 1)) == RUNNING


def test_the_environment_has_pip(tmp_path: Path) -> None:
    subprocess.run([RUNNING, SCRIPT, tmp_path / "made"], check=True)
    own = tmp_path / "made" / "bin" / "python"
    said = subprocess.run([own, "-m", "pip", "--version"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path / "made") in said
