"""Several storage services in one process, so that many fit on one machine: `python -m tests.bench.incast_senders
--settings FILE`.

Each is a whole service, with a port, a directory, targets and connections of its own. They share an event loop.
"""

import asyncio
import signal
import tomllib
from pathlib import Path
from typing import Any

import click
import uvloop
from threefs_storage.node import StorageNode
from threefs_storage.settings import Settings

from threefs.cluster.manager_client import ManagerClient
from threefs.env import process_tuning
from threefs.env.disk import RealDisk
from threefs.env.net import RealNet
from threefs.env.sync_policy import SyncPolicy
from threefs.kv.table import Table
from threefs.rpc.grpc_binding import ControlClient
from threefs.telemetry import logs


async def _open_table(directory: Path) -> Table:
    return await Table.open(directory, sync_policy=SyncPolicy())


async def serve(found: dict[str, Any]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    disk = RealDisk()
    control = ControlClient(found["control"], found["token"])
    nodes = []
    for node_id in range(found["first_node"], found["first_node"] + found["nodes"]):
        directory = Path(found["data_dir"]) / str(node_id)
        directory.mkdir(parents=True, mode=0o700)
        settings = Settings(
            node_id=node_id,
            data_dir=directory,
            manager=found["manager"],
            control=found["control"],
            host=found["host"],
            domain=f"host-{node_id}",
            token=found["token"],
            ballast_bytes=0,
            scrub_bytes_per_s=1,
        )
        nodes.append(
            StorageNode(
                settings,
                net=RealNet(),
                disk=disk,
                managers=lambda peers: ManagerClient([control]),
                open_table=_open_table,
            )
        )
    for node in nodes:
        await node.start()
    print("ready", *(node.address for node in nodes), flush=True)
    await stop.wait()
    await asyncio.gather(*(node.stop() for node in nodes))
    await control.close()
    await disk.close()


@click.command()
@click.option("--settings", "path", type=click.Path(path_type=Path), required=True)
def main(path: Path) -> None:
    logs.configure("senders", "warning")
    process_tuning.raise_descriptor_limit()
    uvloop.run(serve(tomllib.loads(path.read_text())))


if __name__ == "__main__":
    main()
