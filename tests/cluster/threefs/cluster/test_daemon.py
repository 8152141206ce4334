"""The frame of a program, around a service of a few lines."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.harness.processes import environment
from threefs import cluster_key
from threefs.cluster import daemon
from threefs.errors import NotAuthorised, ThreefsError

SCRIPT = """
import asyncio, sys
from dataclasses import dataclass, field
from pathlib import Path
from threefs.cluster import daemon as program
from threefs.background import BackgroundTasks
from threefs.errors import WrongCluster

@dataclass(frozen=True)
class Settings:
    does: str
    data_dir: Path = Path("data")
    log_level: str = "info"
    host: str = "127.0.0.1"
    token: str = field(default="", repr=False)
    key_file: str = ""

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
        elif settings.does == "store":
            (settings.data_dir / "stored").write_text("x")
        elif settings.does == "stop slowly":
            program.ready("h:1")
            await stop.wait()
            print("stopping", flush=True)
            await asyncio.sleep(3600)
        elif settings.does == "lose a task":
            async def dies():
                raise ZeroDivisionError
            BackgroundTasks().start("the heart", dies())
            program.ready("h:1")
            await stop.wait()
        elif settings.does == "broken":
            assert False, "an invariant"
    finally:
        print("cleaned up", flush=True)

program.run("threefs-test", Settings, Path(sys.argv[1]), serve)
"""


def launch(
    directory: Path, text: str, *options: str, environ: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    file = directory / "settings.toml"
    file.write_text(text)
    return subprocess.Popen(
        [sys.executable, *options, "-c", SCRIPT, str(file)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **(environ or {})},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("does", "line"), [("serve", "ready h:1 h:2\n"), ("wait for somebody", "waiting\n")])
def test_a_signal_ends_it_well(number: int, does: str, line: str, tmp_path: Path) -> None:
    """Also while it still waits for something that may never come."""
    with launch(tmp_path, f'does = "{does}"') as process:
        assert process.stdout is not None and process.stdout.readline() == line
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, out) == (0, "cleaned up\n") and '"level": "error"' not in err


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
        out, err = process.communicate()
    assert (process.returncode, out) == (code, "cleaned up\n") and err.endswith(text)
    assert ("Traceback" in err) == (does == "broken"), "only a bug shows where it is"


def test_bad_settings_are_not_served(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"\ncolour = "red"') as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "") and "unknown setting 'colour'" in err


def test_without_a_key_it_does_not_serve_other_machines(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"\nhost = "192.0.2.1"') as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "") and "`threefs key /etc/threefs/key` makes one" in err
    cluster_key.make(tmp_path / "key")
    process = launch(tmp_path, f'does = "serve"\nhost = "192.0.2.1"\nkey_file = "{tmp_path}/key"')
    assert process.stdout is not None and process.stdout.readline() == "ready h:1 h:2\n"
    process.terminate()
    _, err = process.communicate()
    assert cluster_key.read(tmp_path / "key") not in err


def test_what_it_stores_is_nobody_elses(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with launch(tmp_path, 'does = "store"') as process:
        process.communicate()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "stored").stat().st_mode & 0o777 == 0o600


def test_data_of_a_newer_version_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format").write_text("999\n")
    with launch(tmp_path, 'does = "store"') as process:
        _, err = process.communicate()
    assert process.returncode == 1 and "data of a newer version of threefs, in format 999" in err
    assert not (tmp_path / "data" / "stored").exists()


def test_a_log_level_that_is_none_is_not_served(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"\nlog_level = "loud"') as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "") and "log_level must be one of" in err


def test_the_log_of_a_bug_ends_with_its_reason(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "broken"') as process:
        _, err = process.communicate()
    ended = json.loads([line for line in err.splitlines() if line.startswith("{")][-1])
    assert (ended["event"], ended["level"]) == ("ended", "critical") and "an invariant" in ended["reason"]


def test_assertions_must_be_on(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "serve"', "-O") as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "") and "do not run under python -O" in err


def test_a_service_manager_is_notified_of_everything(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60)
        # A message each half a second: the kernel keeps ten of them while this process does not read.
        extra = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        process = launch(tmp_path, 'does = "serve"', environ=extra)
        told = {listener.recv(1000).decode() for _ in range(4)}
        assert {"READY=1\nSTATUS=serving at h:1, h:2", "WATCHDOG=1"} == told
        process.send_signal(signal.SIGSTOP)
        listener.settimeout(2.0)
        with pytest.raises(TimeoutError):
            while True:  # what was sent before, and then nothing more
                listener.recv(1000)
        process.send_signal(signal.SIGCONT)
        listener.settimeout(60)  # on a busy machine it may come late
        assert listener.recv(1000) == b"WATCHDOG=1"
        process.terminate()
        said = []
        while "STOPPING=1" not in said:
            said.append(listener.recv(1000).decode())
        process.communicate()
        assert process.returncode == 0


def test_a_second_process_is_kept_out_of_the_directory(tmp_path: Path) -> None:
    first = launch(tmp_path, 'does = "serve"')
    assert first.stdout is not None and first.stdout.readline() == "ready h:1 h:2\n"
    second = launch(tmp_path, 'does = "serve"')
    _, errors = second.communicate()
    assert second.returncode == 1 and f"data is in use by process {first.pid}" in errors
    first.kill()
    first.communicate()
    third = launch(tmp_path, 'does = "serve"')
    assert third.stdout is not None and third.stdout.readline() == "ready h:1 h:2\n", "the kernel let go of it"
    third.terminate()
    third.communicate()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    process = launch(tmp_path, 'does = "stop slowly"')
    assert process.stdout is not None and process.stdout.readline() == "ready h:1\n"
    process.terminate()
    assert process.stdout.readline() == "stopping\n"
    process.terminate()
    process.communicate()
    assert process.returncode == 1


def test_the_first_and_the_last_line_of_the_log(tmp_path: Path) -> None:
    process = launch(tmp_path, 'does = "serve"')
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, errors = process.communicate()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert (lines[0]["event"], lines[0]["program"], lines[0]["pid"]) == ("starting", "threefs-test", process.pid)
    assert (lines[-1]["event"], lines[-1]["reason"]) == ("ended", "it was stopped")
    assert "address" not in lines[0] and lines[-1]["address"] == "h:1"


class Node:
    """It may fail to start, as real ones do whose managers refuse them."""

    node_id = 7
    address = ""

    def __init__(self, refusal: ThreefsError | None) -> None:
        self.refusal = refusal
        self.stopped = False

    async def start(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.address = "h:1"

    async def stop(self) -> None:
        self.stopped = True


async def test_a_node_serves_until_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    node, stop = Node(None), daemon.Stop()
    serving = asyncio.create_task(daemon.serve_node(node, stop))
    while capsys.readouterr().out != "ready h:1\n":
        await asyncio.sleep(0.01)
    assert not serving.done() and not node.stopped
    stop.set()
    await serving
    assert node.stopped


async def test_a_node_that_could_not_start_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(NotAuthorised("another key"))
    with pytest.raises(NotAuthorised):
        await daemon.serve_node(node, daemon.Stop())
    assert node.stopped and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("manager", "control", "warned"), [("a:1", "a:2,b:2", 1), ("a:1,b:1", "a:2,b:2", 0), ("a:1", "", 0)]
)
def test_settings_that_name_all_managers_in_the_old_place_only_are_told_of(
    manager: str, control: str, warned: int
) -> None:
    with capture_logs() as logs:
        daemon.check_managers(manager, control)
    assert len(logs) == warned


def test_a_process_whose_background_task_has_died_ends(tmp_path: Path) -> None:
    with launch(tmp_path, 'does = "lose a task"') as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "ready h:1\ncleaned up\n")
    assert "ZeroDivisionError" in err and "'the heart'" in err
