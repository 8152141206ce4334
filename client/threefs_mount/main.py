"""`python -m threefs_mount`: the process that `threefs mount` starts. It runs until the unmount."""

import sys

import click
import uvloop

from threefs.background import TaskDied
from threefs.errors import ThreefsError
from threefs.telemetry import logs
from threefs_mount import mount_process, supervisor
from threefs_mount.options import MountOptions


@click.command()
@click.option("--address", required=True)
@click.option("--cache", "cache_s", type=float, default=1.0)
@click.option("--timeout", "timeout_s", type=float, default=60.0)
@click.option("--private", is_flag=True)
@click.option("--flag", "flags", multiple=True)
@click.option("--key-file", default="")
@click.option("--metrics-port", type=int, default=0)
@click.option("--supervise", is_flag=True)
@click.option(supervisor.REPLACE, is_flag=True, hidden=True)
@click.argument("point")
def main(
    address: str,
    cache_s: float,
    timeout_s: float,
    private: bool,
    flags: tuple[str, ...],
    key_file: str,
    metrics_port: int,
    supervise: bool,
    replace: bool,
    point: str,
) -> None:
    logs.configure("threefs-mount")

    def ready() -> None:
        print("ready", point, flush=True)

    def replaced() -> None:
        print("replaced", point, flush=True)

    if supervise:
        command = [sys.executable, "-m", "threefs_mount", *(word for word in sys.argv[1:] if word != "--supervise")]
        sys.exit(uvloop.run(supervisor.supervise(command, point, ready)))
    options = MountOptions(
        cache_s=cache_s,
        timeout_s=timeout_s,
        allow_other=not private,
        flags=flags,
        key_file=key_file,
        metrics_port=metrics_port,
    )
    try:
        uvloop.run(mount_process.serve(address, point, options, ready, replaced if replace else None))
    except (ThreefsError, TaskDied, OSError) as error:
        sys.exit(str(error))
