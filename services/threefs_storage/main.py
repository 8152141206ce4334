"""The program `threefs-storage`."""

from pathlib import Path

from threefs.cluster import daemon
from threefs.cluster.manager_client import ManagerClient
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.env.sync_policy import SyncPolicy
from threefs.kv.table import Table
from threefs.telemetry import logs
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings

_ABOUT = "Run a storage service for one disk. It prints `ready ADDRESS` once it serves."

_EXAMPLE = """
\b
The settings file, for example:
  data_dir = "/srv/threefs/disk1"
  host = "10.0.0.1"               # how others reach this machine
  node_id = 1                     # as in the cluster's plan
  manager = "10.0.0.1:7000"       # of several managers all, with commas between
  domain = "host-a"               # what fails together, usually the machine
  port = 7021
  log_level = "info"              # debug, info, warning, error

SIGTERM stops it after what is in flight, a second one at once.
"""


async def serve(settings: Settings, stop: daemon.Stop) -> None:
    """Run until `stop` is requested."""
    logs.identify(node_id=settings.node_id)
    daemon.check_managers(settings.manager, settings.control)
    disk = RealDisk()
    try:
        node = StorageNode(
            settings,
            net=RealNet(),
            disk=disk,
            managers=lambda peers: ManagerClient.over_frames(peers, settings.managers),
            open_table=_open_table,
        )
        await daemon.serve_node(node, stop)
    finally:
        await disk.close()


async def _open_table(directory: Path) -> Table:
    return await Table.open(directory, sync_policy=SyncPolicy())


main = daemon.command("threefs-storage", Settings, serve, about=_ABOUT, example=_EXAMPLE)
