"""The program `threefs-meta`."""

from pathlib import Path

import click

from threefs import __version__, program
from threefs.env.net import RealNet
from threefs.kv.rocks import RocksEngine
from threefs.managers import Managers
from threefs.rpc.control import ControlClient
from threefs.telemetry import logs
from threefs_meta.node import MetaNode
from threefs_meta.settings import Settings

_EXAMPLE = """
\b
The settings file, for example:
  data_dir = "/var/lib/threefs/meta"
  host = "10.0.0.1"               # how others reach this machine
  manager = "10.0.0.1:7000"        # clients' port of the manager
  control = "10.0.0.1:7001"        # its port for services
  port = 7010
  log_level = "info"              # debug, info, warning, error

SIGTERM stops it after what is in flight, a second one at once.
"""


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    engine = await RocksEngine.open(settings.data_dir / "kv")
    controls = [ControlClient(address, settings.token) for address in settings.controls]
    node = MetaNode(settings, net=RealNet(), engine=engine, managers=lambda peers: Managers(controls))
    try:
        await node.start()
        logs.identify(node_id=node.node_id)
        program.ready(node.address)
        await stop.wait()
    finally:
        await node.stop()
        for control in controls:
            await control.close()
        await engine.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLE)
@click.version_option(__version__, prog_name="threefs-meta")
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a meta service. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-meta", Settings, path, serve)
