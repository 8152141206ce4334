"""`threefs bench`, also installed as `threefs-bench`: from the command line to the report."""

import asyncio
import errno
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import uvloop
from threefs_cli.cluster_selector import ClusterSelector
from threefs_client import keyring

from threefs import __version__
from threefs.env import unwritten_output
from threefs.env.clock import CLOCK
from threefs.env.net import parse_address
from threefs.errors import InvalidArgument, ThreefsError
from threefs_bench.load import fio_report, job_file, options, progress, remote, text
from threefs_bench.load.fio_report import Entry
from threefs_bench.load.job import Job, check_together
from threefs_bench.load.runner import Runner

FORMATS = ("normal", "json", "json+")
#: Exit codes: a job failed; the command line is wrong; Ctrl-C.
FAILED, MISUSED, INTERRUPTED = 1, 2, 130

_INTRODUCTION = """\
Usage: threefs bench [OPTION...] --name=NAME [OPTION...] [--name=...] [JOB_FILE...]

Load on a cluster or on any directory, in the language of fio: its options, its job files, its JSON.

  threefs bench --name=a --rw=read --bs=1m --size=1g --iodepth=8
      Read 1 GiB in blocks of 1 MiB, with 8 of them in flight. The file is written first if it is not there.
  threefs bench --name=a --rw=randread --bs=4k --size=1g --batch=256 --iodepth=1024 --runtime=10 --time_based
      Random reads for 10 seconds: 4 calls in flight, each of 256 blocks.
  threefs bench --name=a --ioengine=posix --directory=/mnt/data --rw=randrw --rwmixread=70 --size=256m --verify=crc32c
      Through a mount, 70 % reads, and every block is checked.
  threefs bench --name=a --ioengine=meta --metaop=create/20:stat/60:remove/20 --nrfiles=10000 --iodepth=32
      Names are created, looked at and removed.
  threefs bench benchmarks/jobs/training.fio --output-format=json --output=training.json
      A job file; the report as fio's plotting tools read it.
  threefs bench --client=node1,node2 benchmarks/jobs/training.fio
      The same from two hosts, on which `threefs bench --server=0.0.0.0:8765 --key-file=...` runs.

Options before the first --name hold for all jobs. Jobs run at the same time, unless one has a stonewall. Sizes end with
k, m, g or t (powers of 1024). The cluster is the one of --address, else that of $THREEFS_ADDRESS or of `threefs up`.
docs/load-generator.md explains everything with examples."""

_RUN_HELP = (
    ("output=FILE", "Write the report to a file."),
    ("output-format=FORMAT", "normal, json, or json+, which has the bins of the histograms too."),
    ("json", "The same as --output-format=json, as all commands of threefs have it."),
    ("eta=WHEN", "Show the progress: auto (on a terminal), always, never."),
    ("client=HOST[:PORT],...", f"Let the servers on these hosts do the work. The port is {remote.DEFAULT_PORT}."),
    ("server[=HOST:PORT]", f"Be such a server, on 127.0.0.1:{remote.DEFAULT_PORT} unless said otherwise."),
    ("allow-directory=DIR", "With --server: let jobs of the engine posix work below DIR. Without it they are refused."),
    ("key-file=FILE", "Key of the cluster, where it is not found. Hosts prove it to each other as well."),
    ("version", "Show the version."),
    ("help", "Show this."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    try:
        return _main(job_file.parse_arguments(sys.argv[1:] if arguments is None else arguments))
    except (InvalidArgument, FileNotFoundError, IsADirectoryError) as error:
        return _complain(error, MISUSED)
    except (ThreefsError, OSError) as error:
        return _end_quietly() if error.errno == errno.EPIPE else _complain(error, FAILED)


def _end_quietly() -> int:
    """The reader of our output has closed the pipe, as `head` does: nothing more is written to it."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    return FAILED


def _complain(error: OSError, code: int) -> int:
    where = f"{error.filename}: " if error.filename and not isinstance(error, ThreefsError) else ""
    unwritten_output.last_word(f"Error: {where}{error.strerror or error}")
    return code


def _main(command: job_file.CommandLine) -> int:
    run = command.run
    if "help" in run:
        print(help_text(), flush=True)
        return 0
    if "version" in run:
        print(f"threefs-bench {__version__}")
        return 0
    if "server" in run:
        host, port = parse_address(run["server"]) if run["server"] else ("127.0.0.1", remote.DEFAULT_PORT)
        uvloop.run(_serve(_load_server(run), host, port))
        return 0
    if not command.jobs:
        raise InvalidArgument("there is no job: --name=NAME begins one, or name a job file (--help shows examples)")
    form = run.get("output-format", "json" if "json" in run else FORMATS[0])
    if form not in FORMATS:
        raise InvalidArgument(f"output-format={form} is none of {', '.join(FORMATS)}")
    with _opened(run.get("output")) as write:
        jobs = [_with_address(job) for job in command.jobs]
        check_together(jobs)
        entries, services, interrupted = uvloop.run(_measure(jobs, run))
        write(_rendered(entries, services, form, remote="client" in run))
    if interrupted:
        return INTERRUPTED
    return FAILED if any(entry.result.errno for entry in entries) else 0


@contextmanager
def _opened(path: str | None) -> Iterator[Callable[[str], None]]:
    """The writer of the report. A file is opened before the run, not only when there is something to lose."""
    if path is None:
        yield lambda rendered: print(rendered, flush=True)
        return
    with open(path, "w", encoding="utf-8") as file:
        yield lambda rendered: print(rendered, file=file)


def _with_address(job: Job) -> Job:
    """With the cluster that the environment names, if the job needs one and names none."""
    if job.engine == "posix" or job["address"]:
        return job
    url = ClusterSelector(None, None, False).url()
    return Job(job.given, {**job.inherited, "address": url})


async def _measure(jobs: Sequence[Job], run: dict[str, str]) -> tuple[list[Entry], list[dict[str, float]], bool]:
    """(entries, CPU seconds of services in each phase, whether it was interrupted)."""
    with progress.shown(run.get("eta", "auto")) as show:
        if "client" in run:
            key, _ = keyring.find((), key_file=run.get("key-file", ""))
            several = remote.RemoteRun(run["client"].split(","), jobs, show, key=key)
            with _interruptible(several.stop) as was_interrupted:
                entries, services = await several.run()
            return entries, services, was_interrupted()
        runner = Runner(jobs, show, key_file=run.get("key-file", ""))
        with _interruptible(runner.stop) as was_interrupted:
            done = await runner.run()
        return fio_report.entries(jobs, done), done.services, was_interrupted()


@contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM call `stop`, each time. Tells whether they have."""
    loop = asyncio.get_running_loop()
    times: list[int] = []

    def interrupt() -> None:
        times.append(1)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield lambda: bool(times)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _rendered(entries: Sequence[Entry], services: list[dict[str, float]], form: str, *, remote: bool) -> str:
    if form == "normal":
        return "\n".join(text.lines(entries, services))
    document = fio_report.document(entries, services, CLOCK.wall_ns(), bins=form == "json+", remote=remote)
    return json.dumps(document, indent=2)


def _load_server(run: dict[str, str]) -> remote.LoadServer:
    key_file = run.get("key-file", "")
    key, _ = keyring.find((), key_file=key_file)
    directory = Path(run["allow-directory"]) if "allow-directory" in run else None
    if directory is not None and not directory.is_dir():
        raise InvalidArgument(f"allow-directory={directory} is not a directory")
    return remote.LoadServer(key, key_file=os.path.abspath(key_file) if key_file else "", directory=directory)


async def _serve(server: remote.LoadServer, host: str, port: int) -> None:
    """Until Ctrl-C or SIGTERM."""
    address = await server.start(host, port)
    ended = asyncio.Event()
    with _interruptible(ended.set):
        print(f"ready {address}", flush=True)
        await ended.wait()
    await server.stop()


def help_text() -> str:
    parts = [_INTRODUCTION]
    for group, members in groupby(options.OPTIONS, key=lambda option: option.group):
        parts.append(_table(group, [(_usage(option), option.help + _default(option)) for option in members]))
    parts.append(_table("The run", _RUN_HELP))
    parts.append("Exit codes: 0 all is well; 1 a job failed, or a block was wrong; 2 bad options; 130 Ctrl-C.")
    return "\n\n".join(parts)


def _usage(option: options.Option) -> str:
    return f"{option.name}[=0|1]" if option.is_flag else f"{option.name}={option.name.rpartition('_')[2].upper()}"


def _default(option: options.Option) -> str:
    shown: Any = option.default
    if option.is_flag:
        return f" [default: {int(shown)}]"
    return f" [default: {shown}]" if shown and isinstance(shown, str | int) and "[default" not in option.help else ""


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"{title}:"]
    for name, said in rows:
        first, *rest = textwrap.wrap(said, 90)
        lines.append(f"  --{name:<26}{first}")
        lines += [f"{'':30}{line}" for line in rest]
    return "\n".join(lines)


def script() -> None:
    """The program `threefs-bench`."""
    sys.exit(main())


if __name__ == "__main__":
    script()
