"""The program `threefs-manager`."""

import asyncio
from collections.abc import Iterable

import structlog
from prometheus_client import Metric

from threefs.background import cancel_and_wait
from threefs.backup_source import BackupSource
from threefs.cluster import daemon
from threefs.cluster.applied_configuration import own_values
from threefs.cluster.registration import read_cluster_id, write_cluster_id
from threefs.env.net import RealNet
from threefs.env.random import RANDOM
from threefs.kv import engine_url
from threefs.kv.engine_api import Engine
from threefs.rpc.grpc_binding import ControlServer
from threefs.rpc.handshake import Identity
from threefs.rpc.server import Server
from threefs.rpc.server_metrics import server_metrics
from threefs.telemetry.disk_metrics import store_disk
from threefs.telemetry.metrics_port import MetricsPort
from threefs_manager.election import LEASES_PER_T, Election
from threefs_manager.metrics import control_metrics, manager_metrics
from threefs_manager.service import Manager
from threefs_manager.settings import Settings

_GRACE_S = 2.0

_ABOUT = "Run a cluster manager. It prints `ready ADDRESS CONTROL_ADDRESS` once it serves."

_EXAMPLE = """
\b
The settings file, for example:
  data_dir = "/var/lib/threefs/manager"
  host = "10.0.0.1"               # how others reach this machine
  port = 7000
  control_port = 7001             # for tools in other languages, over gRPC
  engine = "etcd://10.0.0.7,10.0.0.8,10.0.0.9/manager"  # or postgresql://...; without it, a store in data_dir
  log_level = "info"              # debug, info, warning, error

SIGTERM stops it after the calls in flight have ended; a second SIGTERM stops it at once.
"""


async def serve(settings: Settings, stop: daemon.Stop) -> None:
    """Run until `stop` is set."""
    url = engine_url.url_of(settings.engine, settings.data_dir / "kv")
    engine = await engine_url.open_engine(url)
    try:
        await _serve(settings, engine, stop, exclusive=not url.shared)
    finally:
        await engine.close()


async def _serve(settings: Settings, engine: Engine, stop: daemon.Stop, *, exclusive: bool) -> None:
    """`exclusive`: the embedded store admits one process, so the last primary has ended, and no other manager runs."""
    log = structlog.get_logger()
    holder = RANDOM.token(16).hex()
    server = Server(RealNet(), Identity("", holder, settings.token, "threefs-manager"), dscp=settings.dscp)
    control = ControlServer(settings.token)

    def join(cluster_id: str) -> None:
        write_cluster_id(settings.data_dir / "cluster_id", cluster_id)
        server.join(cluster_id)

    election = Election(engine, holder, length_s=settings.lease_s / LEASES_PER_T, exclusive=exclusive)
    known = read_cluster_id(settings.data_dir / "cluster_id")
    manager = Manager(
        engine, election, lease_s=settings.lease_s, expected_cluster_id=known, on_cluster=join, own=own_values(settings)
    )
    manager.bind(server)
    manager.bind(control)
    manager.bind_presence(server)
    backup = BackupSource(engine, wait_admitted=manager.wait_own_store)
    backup.bind(server)

    async def collect_metrics() -> Iterable[Metric]:
        of_disk = store_disk(settings.data_dir) if exclusive else ()
        return [*server_metrics(server), *control_metrics(control), *of_disk, *await manager_metrics(manager)]

    metrics = MetricsPort(RealNet(), collect_metrics)
    running = asyncio.create_task(manager.run())
    try:
        control_address = await control.start(settings.host, settings.control_port)
        address = await server.start(settings.host, settings.port)
        if settings.metrics_port:
            await metrics.start(settings.host, settings.metrics_port)
        if exclusive:  # one among several is ready as soon as it can answer NotPrimary
            await _wait_or_fail(running, manager.leading)
        log.info("serving", address=address, control=control_address)
        daemon.ready(address, control_address)
        await _wait_or_fail(running, stop)
    finally:
        await metrics.stop()
        await manager.resign()
        await cancel_and_wait(running)
        await server.stop(_GRACE_S)
        await control.stop(_GRACE_S)
        await backup.close()


async def _wait_or_fail(running: "asyncio.Task[None]", event: asyncio.Event) -> None:
    """Wait for the event. If the manager ends first, raise its error."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        running.result()


main = daemon.command("threefs-manager", Settings, serve, about=_ABOUT, example=_EXAMPLE)
