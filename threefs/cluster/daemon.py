"""The frame of every service program: its settings, its logs, signals, and the `ready` line."""

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import click
import structlog
import uvloop

from threefs import __version__, background, cluster_key
from threefs import settings as settings_module
from threefs.background import TaskDied
from threefs.cluster import data_format
from threefs.env import process_tuning, unwritten_output
from threefs.env.clock import CLOCK
from threefs.env.directory_lock import close_to_others, owned
from threefs.env.systemd_notify import notify, watchdog_s
from threefs.errors import ThreefsError
from threefs.telemetry import logs


class _Settings(Protocol):
    @property
    def data_dir(self) -> Path: ...
    @property
    def log_level(self) -> str | None: ...
    @property
    def host(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def key_file(self) -> str: ...


class Node(Protocol):
    """A service that belongs to a cluster. Its id and address are known once it has started."""

    @property
    def node_id(self) -> int: ...
    @property
    def address(self) -> str: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


S = TypeVar("S", bound=_Settings)
_ABORT_S = 5.0
Stop = asyncio.Event


_told_ready = False


def ready(*addresses: str) -> None:
    """Announce that this process serves, and at which addresses: by a line on standard output, and to the service
    manager if there is one."""
    global _told_ready
    _told_ready = True
    process_tuning.freeze_objects()
    logs.identify(address=addresses[0])
    print("ready", *addresses, flush=True)
    notify("READY=1", f"STATUS=serving at {', '.join(addresses)}")


def command(
    name: str, settings_class: type[S], serve: Callable[[S, Stop], Awaitable[None]], *, about: str, example: str
) -> click.Command:
    """The command line of a program, which only names its settings file."""

    @click.command(help=about, epilog=example, context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name=name)
    @click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
    def main(path: Path) -> None:
        run(name, settings_class, path, serve)

    return main


def check_managers(manager: str, control: str) -> None:
    """Warn of settings of a release before 0.3 that name more managers for gRPC, which is not used any more."""
    if control.count(",") > manager.count(","):
        structlog.get_logger().warning(
            "`manager` names fewer managers than `control` does, which is not used any more: name all of them there",
            manager=manager,
            control=control,
        )


async def serve_node(node: Node, stop: Stop) -> None:
    """Let a node serve until `stop` is set."""
    try:
        await node.start()
        logs.identify(node_id=lambda: node.node_id)  # a meta service that was forgotten gets another one
        ready(node.address)
        await stop.wait()
    finally:
        await node.stop()


def run(name: str, settings_class: type[S], path: Path, serve: Callable[[S, Stop], Awaitable[None]]) -> None:
    """Load settings and run `serve` until SIGTERM or SIGINT. Exits 2 for bad settings, 1 when it cannot serve."""
    assert_checks_run()
    try:
        settings = with_key(settings_module.load(settings_class, path))
        logs.configure(name, settings.log_level or logs.DEFAULT_LEVEL)
    except ThreefsError as error:
        unwritten_output.last_word(f"{name}: {error}")
        sys.exit(2)
    os.umask(0o077)  # other users must not read what a service stores
    process_tuning.raise_descriptor_limit()
    log = structlog.get_logger()
    log.info("starting", version=__version__, pid=os.getpid(), settings=str(settings))
    try:
        with owned(settings.data_dir):
            close_to_others(settings.data_dir)
            data_format.claim(settings.data_dir)
            uvloop.run(_until_stopped(serve, settings))
    except OSError as error:  # or a ThreefsError: a directory that cannot be written, a port in use
        log.error("ended", reason=str(error))
        unwritten_output.last_word(f"{name}: {error}")
        sys.exit(1)
    except Exception as error:
        log.critical("ended", reason=repr(error))
        raise
    log.info("ended", reason="it was stopped")


def with_key(settings: S) -> S:
    """The settings with the key itself in place of its file. Raises InvalidSettings, also if a key is missing."""
    key = cluster_key.of_settings(settings.token, settings.key_file)
    cluster_key.check_host(settings.host, key)
    return dataclasses.replace(settings, token=key)  # type: ignore[type-var]


def assert_checks_run() -> None:
    """Refuse to run without assertions, because a broken invariant must stop a service."""
    if sys.flags.optimize:
        unwritten_output.last_word(f"{os.path.basename(sys.argv[0])}: services do not run under python -O")
        sys.exit(2)


async def _until_stopped(serve: Callable[[S, Stop], Awaitable[None]], settings: S) -> None:
    """Run `serve` until a signal. Raises TaskDied if a task has ended without which the process is useless."""
    stop = Stop()
    died: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(name: str, error: BaseException | None) -> None:
        if not died.done():
            known = isinstance(error, ThreefsError)  # its text says what is wrong
            died.set_exception(error if known and error else TaskDied(f"the task {name!r} has ended: {error!r}"))

    background.on_death(tell)
    serving = asyncio.ensure_future(serve(settings, stop))

    def ask() -> None:
        if stop.is_set():
            os._exit(1)  # the second signal ends the process at once
        stop.set()
        notify("STOPPING=1")
        if not _told_ready:
            serving.cancel()  # it may wait for a manager without a limit

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    watching = asyncio.create_task(_feed_watchdog(watchdog_s()))
    try:
        await asyncio.wait([serving, died], return_when=asyncio.FIRST_COMPLETED)
        if died.done() and not serving.done():
            await _abort(serving)
            await died
        await serving
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        watching.cancel()
        serving.cancel()
        died.cancel()


async def _abort(serving: "asyncio.Future[None]") -> None:
    """End the service: orderly if that works, so that peers hear of it, otherwise as a crash does."""
    serving.cancel()
    _, pending = await asyncio.wait([serving], timeout=_ABORT_S)
    if pending:
        structlog.get_logger().critical("ended", reason=f"no orderly stop within {_ABORT_S:.0f} s of a death")
        os._exit(1)


async def _feed_watchdog(interval_s: float) -> None:
    """Feed the watchdog of the service manager from the loop that does the work, so a process that hangs is
    restarted."""
    while interval_s:
        notify("WATCHDOG=1")
        await CLOCK.sleep(interval_s / 2)
