"""The program `threefs-meta`."""

from pathlib import Path

import click

from threefs import program
from threefs.env.net import RealNet
from threefs.kv.rocks import RocksEngine
from threefs.managers import Managers
from threefs.rpc.control import ControlClient
from threefs_meta.node import MetaNode
from threefs_meta.settings import Settings


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = await RocksEngine.open(settings.data_dir / "kv")
    controls = [ControlClient(address, settings.token) for address in settings.controls]
    node = MetaNode(settings, net=RealNet(), engine=engine, managers=lambda peers: Managers(controls))
    try:
        await node.start()
        program.ready(node.address)
        await stop.wait()
    finally:
        await node.stop()
        for control in controls:
            await control.close()
        await engine.close()


@click.command()
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a meta service. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-meta", Settings, path, serve)
