import asyncio
import dataclasses
import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from threefs_cli import cluster_commands, cluster_file, processes
from threefs_cli.cluster_file import ClusterFile, Plan
from threefs_cli.main import main

from threefs.errors import Unavailable


class WatchedCluster:
    """Runs until it is told to stop."""

    def __init__(self, directory: Path = Path()) -> None:
        self.watched, self.is_down, self.directory = asyncio.Event(), False, directory

    def load(self) -> None:
        pass

    async def up(self, *arguments: object, **options: object) -> ClusterFile:
        return cluster_file.fresh(Plan())

    async def watch(self, progress: Callable[[str], None], stopped: Callable[[], bool]) -> None:
        self.watched.set()
        while not stopped():
            await asyncio.sleep(0.01)

    async def down(self) -> None:
        os.kill(os.getpid(), signal.SIGHUP)  # a shell repeats it
        await asyncio.sleep(0.05)
        self.is_down = True
        (self.directory / "stopped").touch()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the test run, which no signal ends meanwhile."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *received: None) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


async def ends_on(directory: Path, *numbers: signal.Signals, wait_s: float = 10) -> bool:
    cluster = WatchedCluster(directory)
    state = cluster_file.fresh(Plan())
    running = asyncio.create_task(cluster_commands._run_in_foreground(cast(Any, cluster), state, [], as_json=True))
    await cluster.watched.wait()
    for number in numbers:
        os.kill(os.getpid(), number)
    await asyncio.wait([running], timeout=wait_s)
    ended = running.done()
    running.cancel()
    await asyncio.wait([running])
    return ended and cluster.is_down


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_cluster_in_the_foreground_is_stopped_with_its_command(number: signal.Signals, tmp_path: Path) -> None:
    """SIGHUP: the terminal was closed."""
    assert await ends_on(tmp_path, number)


@pytest.mark.parametrize("lost", ["its output", "a signal"])
def test_a_start_whose_end_cannot_be_shown_leaves_nothing_running(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of its output was full, or the terminal gone: the command ended, and the cluster ran on."""

    def show(*_: object) -> None:
        if lost == "its output":
            raise OSError(errno.EIO, "the terminal is gone")
        os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(cluster_commands, "LocalCluster", WatchedCluster)
    monkeypatch.setattr(cluster_commands, "_show_up", show)
    found = CliRunner().invoke(main, ["up", "--foreground", "--dir", str(tmp_path)])
    assert (tmp_path / "stopped").exists(), found.output
    assert found.exit_code == (1 if lost == "its output" else 0)


class LackingCluster(WatchedCluster):
    """Of its processes one serves, one has never served, one has ended, and one was not started."""

    async def up(self, *arguments: object, **options: object) -> ClusterFile:
        lacking = options["lacking"]
        assert isinstance(lacking, list), "it goes on in the foreground"
        lacking.append("storage-2 did not start; the rest of the cluster runs")
        state = cluster_file.fresh(Plan(storage=2, replicas=2))
        runs, ended = processes.of(os.getpid()), processes.Process(1 << 30, 1)
        for name, addresses, process in (("manager", ("h:1",), runs), ("meta", (), runs), ("storage-1", (), ended)):
            state = state.replace(dataclasses.replace(state.program(name), addresses=addresses, process=process))
        return state

    async def watch(self, progress: Callable[[str], None], stopped: Callable[[], bool]) -> None:
        (self.directory / "watched").touch()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_cluster_in_the_foreground_runs_without_what_can_be_missed(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dead disk kept all others from running, in each container and unit that runs in the foreground."""
    monkeypatch.setattr(cluster_commands, "LocalCluster", LackingCluster)
    found = CliRunner().invoke(main, ["up", "--foreground", "--dir", str(tmp_path), *options])
    assert (tmp_path / "watched").exists() and (tmp_path / "stopped").exists(), found.output
    assert found.exit_code == 0 and "Error: storage-2 did not start; the rest" in found.stderr
    if options:
        rows = json.loads(found.stdout)["programs"]
        assert [(row["name"], row["address"]) for row in rows] == [("manager", "h:1"), ("meta", "")]
    else:
        assert "threefs://h:1 is up" in found.stdout


async def test_under_nohup_a_closed_terminal_stops_nothing(tmp_path: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert not await ends_on(tmp_path, signal.SIGHUP, wait_s=0.1)
    assert await ends_on(tmp_path, signal.SIGHUP, signal.SIGTERM)


class StartingCluster:
    """Its start takes long, and so does what ends it early."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self) -> None:
        pass

    async def up(self, *arguments: object, **options: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(2)
            raise Unavailable("nothing has ended it")
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
            (self.directory / "stopped").touch()
            raise


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed_during_the_start_ends_it(
    ignored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was killed, and the cluster ran on. A shell sends the signal once more, after the terminal."""
    monkeypatch.setattr(cluster_commands, "LocalCluster", StartingCluster)
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    found = CliRunner().invoke(main, ["up", "--foreground", "--dir", str(tmp_path)])
    assert (found.exit_code, (tmp_path / "stopped").exists()) == ((1, False) if ignored else (130, True)), found.output
