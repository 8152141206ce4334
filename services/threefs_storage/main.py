"""The program `threefs-storage`."""

from pathlib import Path

import click

from threefs import __version__, program
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.managers import Managers
from threefs.rpc.control import ControlClient
from threefs.telemetry import logs
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings

_EXAMPLE = """
\b
The settings file, for example:
  data_dir = "/srv/threefs/disk1"
  host = "10.0.0.1"               # how others reach this machine
  node_id = 1                     # as in the cluster's plan
  manager = "10.0.0.1:7000"        # clients' port of the manager
  control = "10.0.0.1:7001"        # its port for services
  domain = "host-a"               # what fails together, usually the machine
  port = 7021
  log_level = "info"              # debug, info, warning, error

SIGTERM stops it after what is in flight, a second one at once.
"""


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    logs.identify(node_id=settings.node_id)
    disk = RealDisk()
    controls = [ControlClient(address, settings.token) for address in settings.controls]
    node = StorageNode(settings, net=RealNet(), disk=disk, managers=lambda peers: Managers(controls))
    try:
        await node.start()
        program.ready(node.address)
        await stop.wait()
    finally:
        await node.stop()
        for control in controls:
            await control.close()
        await disk.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLE)
@click.version_option(__version__, prog_name="threefs-storage")
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a storage service for one disk. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-storage", Settings, path, serve)
