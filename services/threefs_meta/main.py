"""The program `threefs-meta`."""

from threefs.cluster import daemon
from threefs.cluster.manager_client import ManagerClient
from threefs.env.net import RealNet
from threefs.env.sync_policy import SyncPolicy
from threefs.kv import engine_url
from threefs_meta.node import MetaNode
from threefs_meta.settings import Settings

_ABOUT = "Run a meta service. It prints `ready ADDRESS` once it serves."

_EXAMPLE = """
\b
The settings file, for example:
  data_dir = "/var/lib/threefs/meta"
  host = "10.0.0.1"               # how others reach this machine
  manager = "10.0.0.1:7000"       # of several managers all, with commas between
  port = 7010
  engine = "etcd://10.0.0.7,10.0.0.8,10.0.0.9/meta"  # or postgresql://...; without it, a store in data_dir
  log_level = "info"              # debug, info, warning, error

SIGTERM stops it after the calls in flight, a second SIGTERM at once.
"""


async def serve(settings: Settings, stop: daemon.Stop) -> None:
    """Run until `stop` is set."""
    daemon.check_managers(settings.manager, settings.control)
    url = engine_url.url_of(settings.engine, settings.data_dir / "kv")
    engine = await engine_url.open_engine(url, sync_policy=SyncPolicy())

    try:
        node = MetaNode(
            settings,
            net=RealNet(),
            engine=engine,
            managers=lambda peers: ManagerClient.over_frames(peers, settings.managers),
            sole=not url.shared,
        )
        await daemon.serve_node(node, stop)
    finally:
        await engine.close()


main = daemon.command("threefs-meta", Settings, serve, about=_ABOUT, example=_EXAMPLE)
