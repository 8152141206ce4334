"""The program `threefs-storage`."""

from pathlib import Path

import click
import structlog

from threefs import program
from threefs.cluster import Cluster
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.ids import NodeId
from threefs.registration import Registration, read_cluster_id
from threefs.routing import NodeKind
from threefs.rpc.control import ControlClient
from threefs.rpc.identity import Identity
from threefs.rpc.peers import Peers
from threefs.rpc.server import Server
from threefs_storage.engine.engine import EngineSettings
from threefs_storage.service import Storage
from threefs_storage.settings import Settings
from threefs_storage.targets import Targets

_GRACE_S = 2.0
_MANAGER_S = 3600.0


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    cluster_file = settings.data_dir / "cluster_id"
    incarnation = int.from_bytes(RANDOM.token(8), "big")
    identity = Identity(read_cluster_id(cluster_file), RANDOM.token(16).hex(), settings.token, "threefs-storage")
    net, disk = RealNet(), RealDisk()
    server = Server(net, identity)
    address = await server.start(settings.host, settings.port)
    targets = Targets(
        NodeId(settings.node_id),
        settings.data_dir,
        disk,
        EngineSettings(settings.full_ratio, settings.cached_records),
    )
    control = ControlClient(settings.control, settings.token)
    registration = Registration(
        control,
        kind=NodeKind.STORAGE,
        node_id=settings.node_id,
        address=address,
        incarnation=incarnation,
        domain=settings.domain,
        cluster_file=cluster_file,
        reports=targets.reports,
        heartbeat_s=settings.heartbeat_s,
    )
    peers = Peers(net, identity)
    cluster = Cluster(peers, [settings.manager])
    storage = Storage(targets, cluster, peers, server.pool)
    try:
        await registration.start()
        server.join(registration.cluster_id)
        await cluster.start(_MANAGER_S)
        await targets.open(cluster.routing)
        storage.start(server)
        registration.report()
        structlog.get_logger().info("serving", address=address, targets=sorted(targets.by_id))
        program.ready(address)
        await stop.wait()
    finally:
        await registration.stop()
        await server.stop(_GRACE_S)
        await storage.stop()
        await targets.close()
        await cluster.close()
        await peers.close()
        await control.close()
        await disk.close()


@click.command()
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a storage service for one disk. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-storage", Settings, path, serve)
