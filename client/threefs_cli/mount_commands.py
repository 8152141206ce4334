"""`threefs mount`, `umount`."""

import hashlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import uvloop
from threefs_mount import mountpoints
from threefs_mount.options import MountOptions

from threefs.env.clock import CLOCK
from threefs.errors import Unavailable
from threefs_cli import output, processes
from threefs_cli.cluster_selector import ClusterSelector, cluster_options
from threefs_cli.option_types import json_option
from threefs_cli.processes import Process

STATE_VARIABLE = "XDG_STATE_HOME"
_START_S = 60.0
_EXIT_TIMEOUT_S = 90.0
_POLL_S = 0.02


@click.command(
    epilog="""
\b
Examples:
  threefs mount /mnt/data
  threefs mount --address threefs://manager:7000 -o ro /mnt/data
"""
)
@click.argument("mountpoint")
@click.option("--foreground", is_flag=True, help="Stay until the unmount.")
@click.option(
    "--cache",
    "cache_s",
    type=float,
    default=1.0,
    show_default=True,
    help="Seconds for which names and attributes are cached.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds after which a call fails."
)
@click.option("--private", is_flag=True, help="Let only this user use the mount.")
@click.option("--supervise", is_flag=True, help="Restart the process behind the mount if it dies.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0, help="HTTP for Prometheus on this machine.")
@click.option("-o", "flags", help="Options of mount(8), separated by commas: ro, nosuid, noexec, ...")
@cluster_options
def mount(
    selector: ClusterSelector,
    mountpoint: str,
    foreground: bool,
    cache_s: float,
    timeout_s: float,
    private: bool,
    supervise: bool,
    metrics_port: int,
    flags: str | None,
) -> None:
    """Show the cluster as a directory.

    Returns when the directory is mounted. The process behind the mount runs until `threefs umount`; --json prints the
    name of its log.
    """
    url = selector.url()
    allow_other = not private and may_allow_other()
    options = MountOptions(
        cache_s=cache_s,
        timeout_s=timeout_s,
        allow_other=allow_other,
        flags=tuple((flags or "rw").split(",")),
        key_file=os.path.abspath(key_file) if (key_file := selector.key_file()) else "",
        supervise=supervise,
        metrics_port=metrics_port,
    )
    place = mountpoints.check(mountpoint)
    if mountpoints.is_dead(place):
        click.echo(f"the process behind the mount at {place} has ended; mounting again", err=True)
    command = server_command(url, place, options)
    if foreground:
        os.execv(command[0], command)
    server = Server(place)
    pid = uvloop.run(server.start(command))
    if selector.as_json:
        output.print_json({"address": url, "mountpoint": place, "pid": pid, "log": str(server.log)})
    else:
        click.echo(f"{url} is mounted at {place}")


@click.command(
    epilog="""
\b
Examples:
  threefs umount /mnt/data
  threefs umount --lazy /mnt/data
"""
)
@click.argument("mountpoint")
@click.option("--lazy", is_flag=True, help="Detach it at once; its process ends with its last user.")
@json_option
def umount(mountpoint: str, lazy: bool, as_json: bool) -> None:
    """End a mount, also one whose process has died. Returns when everything that was written is stored."""
    place = mountpoints.kernel_path(mountpoint)
    mounted = mountpoints.find(place)
    serving = [] if mounted is None else [processes.of(pid) for pid in mountpoints.servers(place, mounted.uid)]
    mountpoints.unmount(place, lazy=lazy)
    if not lazy and not uvloop.run(await_exit(serving)):
        raise Unavailable(
            f"{place} is unmounted, but the process behind it is still busy after {_EXIT_TIMEOUT_S:.0f} s"
        )
    if as_json:
        output.print_json({"mountpoint": place, "lazy": lazy})


def may_allow_other() -> bool:
    """Whether the kernel's helper lets us admit other users."""
    if os.geteuid() == 0:
        return True
    try:
        lines = Path("/etc/fuse.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def server_command(url: str, place: str, options: MountOptions) -> list[str]:
    command = [sys.executable, "-m", "threefs_mount", "--address", url]
    command += ["--cache", str(options.cache_s), "--timeout", str(options.timeout_s)]
    command += [] if options.allow_other else ["--private"]
    command += ["--supervise"] if options.supervise else []
    command += ["--key-file", options.key_file] if options.key_file else []
    command += ["--metrics-port", str(options.metrics_port)] if options.metrics_port else []
    command += [word for flag in options.flags for word in ("--flag", flag)]
    return [*command, place]


@dataclass(frozen=True, slots=True)
class Server:
    """Starts the process behind a mount; it says `ready` in a file, and everything else in a log."""

    place: str

    @property
    def _directory(self) -> Path:
        state = os.environ.get(STATE_VARIABLE, "")
        top = Path(state) if state else Path.home() / ".local" / "state"
        return top / "threefs" / "mounts" / hashlib.sha256(os.fsencode(self.place)).hexdigest()[:16]

    @property
    def log(self) -> Path:
        return self._directory / "log"

    async def start(self, command: list[str]) -> int:
        """Its pid, once it is mounted. Raises Unavailable with what the process said."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        process = processes.start(command, output=self._directory / "ready", log=self.log, environment=environment())
        try:
            return await self._await_ready(process)
        except BaseException:  # Ctrl-C, or it takes too long: nobody would know of it
            processes.send(process, signal.SIGTERM)
            await await_exit([process])
            raise

    async def _await_ready(self, process: Process) -> int:
        ready = self._directory / "ready"
        deadline = CLOCK.monotonic() + _START_S
        while CLOCK.monotonic() < deadline:
            if ready.read_bytes().startswith(b"ready "):
                return process.pid
            if not processes.alive(process):
                raise Unavailable(
                    f"{self.place} was not mounted: {processes.last_log_line(self.log)} (log: {self.log})"
                )
            await CLOCK.sleep(_POLL_S)
        raise Unavailable(f"{self.place} was not mounted after {_START_S:.0f} s (log: {self.log})")


def environment() -> dict[str, str]:
    """The environment of the process behind a mount: it keeps large buffers, as fresh memory is slow."""
    return {
        "MALLOC_MMAP_THRESHOLD_": str(8 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
        **processes.child_environment(),
    }


async def await_exit(serving: list[Process]) -> bool:
    deadline = CLOCK.monotonic() + _EXIT_TIMEOUT_S
    while any(processes.alive(process) for process in serving):
        if CLOCK.monotonic() > deadline:
            return False
        await CLOCK.sleep(_POLL_S)
    return True
