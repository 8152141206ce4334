import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from threefs_bench.load import command, job_file, runner
from threefs_bench.load.runner import Run, Runner, Snapshot

from tests.harness.processes import environment
from threefs.errors import InvalidArgument

pytestmark = pytest.mark.processes


async def run(text: str, directory: Path, stall_s: float = runner.STALL_S) -> tuple[Run, list[Snapshot]]:
    jobs = job_file.parse_text(text, "x", {"ioengine": "posix", "directory": str(directory)})
    snapshots: list[Snapshot] = []
    return await Runner(jobs, snapshots.append, stall_s=stall_s).run(), snapshots


async def test_jobs_run_side_by_side_and_a_stonewall_waits(tmp_path: Path) -> None:
    text = "[global]\nsize=64k\n[a]\nrw=write\nnumjobs=2\n[b]\nrw=write\n[c]\nstonewall\nrw=read\nfilename=a.1.0"
    found, snapshots = await run(text, tmp_path)
    assert [[result.operations for result in results] for results in found.results] == [[16, 16], [16], [16]]
    assert found.services == [{}, {}]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.0.0", "a.1.0", "b.0.0"]
    assert (snapshots[-1].phase, snapshots[-1].phases, snapshots[-1].state, snapshots[-1].fraction) == (
        1,
        2,
        "end",
        1.0,
    )


async def test_one_process_that_cannot_be_prepared_ends_the_run(tmp_path: Path) -> None:
    text = (
        "[a]\nsize=64k\nrw=write\ntime_based\nruntime=3600\n[b]\nsize=64k\ndirectory=/no/such\n[c]\nstonewall\nsize=64k"
    )
    found, _ = await run(text, tmp_path)
    (a,), (b,), c = found.results
    assert b.errno == 2 and "/no/such" in b.error and not a.operations and not c


async def test_a_process_that_cannot_be_prepared_says_why_and_ends_the_run(tmp_path: Path) -> None:
    """The others say so too, unless they were stopped before they tried."""
    found, _ = await run("[a]\nsize=64k\nnumjobs=3\ndirectory=/no/such", tmp_path)
    assert 2 in {result.errno for result in found.results[0]} <= {0, 2}
    assert not any(result.operations for result in found.results[0])


async def test_readers_may_share_a_file_that_is_verified(tmp_path: Path) -> None:
    found, _ = await run("[a]\nsize=64k\nnumjobs=3\nfilename=x\nverify=crc32c", tmp_path)
    assert [(result.operations, result.error) for result in found.results[0]] == [(16, "")] * 3


async def test_a_stop_keeps_the_figures(tmp_path: Path) -> None:
    jobs = job_file.parse_text(
        f"[a]\nioengine=posix\ndirectory={tmp_path}\nsize=64k\ntime_based\nruntime=3600\n[b]\nstonewall\nsize=64k", "x"
    )
    moving = asyncio.Event()

    def show(snapshot: Snapshot) -> None:
        if snapshot.counts:
            moving.set()

    made = Runner(jobs, show)
    running = asyncio.create_task(made.run())
    await moving.wait()
    made.stop()
    (a,), b = (await running).results
    assert a.operations > 0 and not a.errno and not b


async def test_each_phase_of_a_held_run_waits_for_its_release(tmp_path: Path) -> None:
    """Else a fast host would read while a slow one still writes."""
    text = "[a]\nsize=64k\nrw=write\n[b]\nstonewall\nsize=64k\nrw=write"
    jobs = job_file.parse_text(text, "x", {"ioengine": "posix", "directory": str(tmp_path)})
    ready = [asyncio.Event(), asyncio.Event()]

    def show(snapshot: Snapshot) -> None:
        if snapshot.ready:
            ready[snapshot.phase].set()

    made = Runner(jobs, show, hold=True)
    running = asyncio.create_task(made.run())
    for name, each in zip("ab", ready, strict=True):
        await asyncio.wait([running, waiting := asyncio.create_task(each.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done() and not (tmp_path / f"{name}.0.0").stat().st_size
        made.release()
    assert [result.operations for (result,) in (await running).results] == [16, 16]


async def test_a_held_run_that_is_stopped_waits_for_no_release(tmp_path: Path) -> None:
    """Its client stopped it again as one that still waited, and a second stop kills the processes."""
    jobs = job_file.parse_text(f"[a]\nioengine=posix\ndirectory={tmp_path}\nsize=64k", "x")
    ready, snapshots = asyncio.Event(), list[Snapshot]()

    def show(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)
        if snapshot.ready:
            ready.set()

    made = Runner(jobs, show, hold=True)
    running = asyncio.create_task(made.run())
    await ready.wait()
    made.stop()
    assert not snapshots[-1].ready
    ((result,),) = (await running).results
    assert not result.errno and not result.operations


async def test_a_run_that_stands_still_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO without a writer: the process hangs in its open, and only a kill ends it."""
    monkeypatch.setattr(runner, "GRACE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    found, _ = await run("[a]\nsize=64k\nfilename=pipe", tmp_path, stall_s=1.5)
    (result,) = found.results[0]
    assert result.errno == 5 and "the process ended with code" in result.error


async def test_a_run_that_was_stopped_as_it_stood_still_has_an_error(tmp_path: Path) -> None:
    found, _ = await run("[a]\nsize=64k\nrate_iops=1\nruntime=3600\ntime_based", tmp_path, stall_s=0.4)
    assert "nothing was transferred for 0 s" in found.results[0][0].error


async def standing_still(text: str, directory: Path, state: str, *, hold: bool) -> Run:
    """A run that may stand still for two seconds from this state on, which lasts longer."""
    jobs = job_file.parse_text(text, "x", {"ioengine": "posix", "directory": str(directory)})
    reached = asyncio.Event()

    def show(snapshot: Snapshot) -> None:
        if snapshot.state == state and snapshot.ready == hold:
            reached.set()

    made = Runner(jobs, show, hold=hold)
    running = asyncio.create_task(made.run())
    await reached.wait()
    made._stall_s = 2
    if hold:
        await asyncio.sleep(3)
        made.release()
    return await running


async def test_a_ramp_that_transfers_is_no_standstill(tmp_path: Path) -> None:
    text = "[a]\nsize=64k\nrate_iops=50\nramp_time=5\nruntime=1\ntime_based"
    found = await standing_still(text, tmp_path, "ramp", hold=False)
    assert not found.results[0][0].errno and found.results[0][0].operations


async def test_a_host_that_waits_for_others_does_not_stand_still(tmp_path: Path) -> None:
    found = await standing_still("[a]\nsize=64k", tmp_path, "prepare", hold=True)
    assert not found.results[0][0].errno and found.results[0][0].operations == 16


@pytest.mark.parametrize(("soft", "hard", "code"), [(40, 4096, 0), (40, 99, command.MISUSED)])
def test_the_limit_of_open_files_is_raised_or_said(soft: int, hard: int, code: int, tmp_path: Path) -> None:
    """Each process has three pipes. The run ended with a traceback where there was none for the next process."""
    words = ["--name=a", "--ioengine=posix", f"--directory={tmp_path}", "--size=64k", "--numjobs=12"]
    # The shell sets the limits: libraries of other tests do not bear code between fork and exec.
    limited = ["sh", "-c", f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$@"', "sh"]
    found = subprocess.run(
        [*limited, sys.executable, "-m", "threefs_bench.load.command", *words],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert found.returncode == code, found.stderr
    said = "Error: 12 processes at once need 100 open files here, and 99 are allowed: raise `ulimit -n`"
    assert not code or found.stderr.startswith(said), found.stderr


async def test_a_process_that_cannot_be_started_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*command: str, **options: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    with pytest.raises(BlockingIOError, match="temporarily unavailable"):
        await run("[a]\nsize=64k\nnumjobs=2", tmp_path)


def test_processes_are_bounded() -> None:
    jobs = job_file.parse_text("[a]\nsize=64k\nnumjobs=600\n[b]\nsize=64k\nnumjobs=600", "x")
    with pytest.raises(InvalidArgument, match="1200 processes"):
        Runner(jobs, lambda snapshot: None)
