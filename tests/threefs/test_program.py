"""The frame of a program, around a service of a few lines."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import environment

SCRIPT = """
import asyncio, sys
from dataclasses import dataclass
from pathlib import Path
from threefs import program
from threefs.errors import WrongCluster

@dataclass(frozen=True)
class Settings:
    does: str

async def serve(settings, stop):
    try:
        if settings.does == "serve":
            program.ready("h:1", "h:2")
            await stop.wait()
            await asyncio.sleep(0.01)
        elif settings.does == "wait for somebody":
            print("waiting", flush=True)
            await asyncio.Event().wait()
        elif settings.does == "another cluster":
            raise WrongCluster("this is not ours")
        elif settings.does == "no directory":
            open("/nonexistent/directory/file", "w")
        elif settings.does == "broken":
            assert False, "an invariant"
    finally:
        print("cleaned up", flush=True)

program.run("threefs-test", Settings, Path(sys.argv[1]), serve)
"""


def launch(directory: Path, text: str, *options: str) -> "subprocess.Popen[str]":
    file = directory / "settings.toml"
    file.write_text(text)
    return subprocess.Popen(
        [sys.executable, *options, "-c", SCRIPT, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("does", "line"), [("serve", "ready h:1 h:2\n"), ("wait for somebody", "waiting\n")])
def test_a_signal_ends_it_well(number: int, does: str, line: str, tmp_path: Path) -> None:
    """Also while it still waits for something that may never come."""
    with launch(tmp_path, f'does = "{does}"') as process:
        assert process.stdout is not None and process.stdout.readline() == line
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "cleaned up\n", "")


@pytest.mark.parametrize(
    ("does", "code", "text"),
    [
        ("another cluster", 1, "threefs-test: this is not ours\n"),
        ("no directory", 1, "threefs-test: [Errno 2] No such file or directory: '/nonexistent/directory/file'\n"),
        ("broken", 1, "AssertionError: an invariant\n"),
    ],
)
def test_why_it_cannot_serve_is_said(does: str, code: int, text: str, tmp_path: Path) -> None:
    with launch(tmp_path, f'does = "{does}"') as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "cleaned up\n") and err.endswith(text)
    assert ("Traceback" in err) == (does == "broken"), "only a bug shows where it is"


def test_bad_settings_are_not_served(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"\ncolour = "red"') as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "") and "unknown setting 'colour'" in err


def test_assertions_must_be_on(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"', "-O") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "") and "do not run under python -O" in err
