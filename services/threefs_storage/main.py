"""The program `threefs-storage`."""

from pathlib import Path

import click

from threefs import program
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.managers import Managers
from threefs.rpc.control import ControlClient
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
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


@click.command()
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a storage service for one disk. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-storage", Settings, path, serve)
