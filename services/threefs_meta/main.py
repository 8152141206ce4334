"""The program `threefs-meta`."""

from pathlib import Path

import click
import structlog

from threefs import program
from threefs.chunks import Chunks
from threefs.cluster import Cluster
from threefs.env.clock import CLOCK
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.ids import ClientId
from threefs.kv import retry
from threefs.kv.rocks import RocksEngine
from threefs.registration import Registration, read_cluster_id
from threefs.routing import NodeKind
from threefs.rpc.control import ControlClient
from threefs.rpc.identity import Identity
from threefs.rpc.methods import GET_STATUS
from threefs.rpc.peers import Peers
from threefs.rpc.server import Server
from threefs.wire import manager_pb2
from threefs_meta.allocator import Allocator
from threefs_meta.collector import Collector
from threefs_meta.context import Context
from threefs_meta.namespace import make_root
from threefs_meta.service import bind
from threefs_meta.settings import Settings

_GRACE_S = 2.0
_START_S = 30.0
_STATUS_S = 5.0


async def serve(settings: Settings, stop: program.Stop) -> None:
    """Run until told to stop."""
    log = structlog.get_logger()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    cluster_file = settings.data_dir / "cluster_id"
    client = ClientId(RANDOM.token(16))
    identity = Identity(read_cluster_id(cluster_file), client.hex(), settings.token, "threefs-meta")
    net = RealNet()
    engine = await RocksEngine.open(settings.data_dir / "kv")
    await retry.run(engine, lambda tx: make_root(tx, CLOCK.wall_ns()), replayable=True)
    server, peers, control = (
        Server(net, identity),
        Peers(net, identity),
        ControlClient(settings.control, settings.token),
    )
    cluster = Cluster(peers, [settings.manager])

    async def status() -> manager_pb2.GetStatusReply:
        return await control.call(GET_STATUS, manager_pb2.GetStatusRequest(), timeout_s=_STATUS_S)

    context = Context(
        engine=engine,
        chunks=Chunks(peers, cluster, client),
        allocator=Allocator(engine),
        routing=lambda: cluster.routing,
        status=status,
        clock=CLOCK,
        random=RANDOM,
    )
    collector = Collector(context)
    bind(server, context)
    registration = None
    try:
        address = await server.start(settings.host, settings.port)
        registration = Registration(
            control,
            kind=NodeKind.META,
            node_id=0,
            address=address,
            incarnation=int.from_bytes(RANDOM.token(8), "big"),
            domain="",
            cluster_file=cluster_file,
        )
        await registration.start()
        server.join(registration.cluster_id)
        await cluster.start(_START_S)
        collector.start()
        log.info("serving", address=address, node_id=registration.node_id)
        program.ready(address)
        await stop.wait()
    finally:
        if registration is not None:
            await registration.stop()
        await server.stop(_GRACE_S)
        await collector.stop()
        await cluster.close()
        await peers.close()
        await control.close()
        await engine.close()


@click.command()
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True, help="TOML file.")
def main(path: Path) -> None:
    """Run a meta service. It prints `ready ADDRESS` once it serves."""
    program.run("threefs-meta", Settings, path, serve)
