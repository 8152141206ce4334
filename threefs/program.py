"""What every service program does around its work: settings, logs, signals, the `ready` line."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from threefs import settings as settings_module
from threefs.errors import ThreefsError
from threefs.telemetry import logs

S = TypeVar("S")
Stop = asyncio.Event


_told_ready = False


def ready(*addresses: str) -> None:
    """Tell who started us that we serve, and where: one line on standard output."""
    global _told_ready
    _told_ready = True
    print("ready", *addresses, flush=True)


def run(name: str, settings_class: type[S], path: Path, serve: Callable[[S, Stop], Awaitable[None]]) -> None:
    """Load settings and run `serve` until SIGTERM or SIGINT. Exits 2 for bad settings, 1 when it cannot serve."""
    assert_checks_run()
    try:
        settings = settings_module.load(settings_class, path)
    except ThreefsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    logs.configure(name)
    try:
        uvloop.run(_until_stopped(serve, settings))
    except OSError as error:  # of our own tree too: a directory that cannot be written, a port in use
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(1)


def assert_checks_run() -> None:
    """Broken invariants must stop a service, so it does not run without them."""
    if sys.flags.optimize:
        print(f"{os.path.basename(sys.argv[0])}: services do not run under python -O", file=sys.stderr)
        sys.exit(2)


async def _until_stopped(serve: Callable[[S, Stop], Awaitable[None]], settings: S) -> None:
    stop = Stop()
    serving = asyncio.ensure_future(serve(settings, stop))

    def ask() -> None:
        stop.set()
        if not _told_ready:
            serving.cancel()  # it may be waiting for a manager that never comes

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    try:
        await serving
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
