"""A process that is to register again, on a disk that takes nothing."""

import asyncio
from pathlib import Path
from typing import Any

from threefs.cluster.registration import Registration
from threefs.errors import NotFound, StaleIncarnation, ThreefsError
from threefs.routing import NodeKind
from threefs.rpc.methods import GET_ROUTING, REGISTER
from threefs.wire import manager_pb2 as pb


class Manager:
    """Fails with the errors it is given, one a call. The disk is full from when it is asked for the routing."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.errors: list[ThreefsError] = []
        self.heard = asyncio.Event()

    async def call(self, method: Any, request: Any, *, timeout_s: float) -> Any:
        if method is GET_ROUTING:
            self.file.mkdir()
            return pb.GetRoutingReply(routing=pb.Routing(lease_ms=1000))
        if self.errors:
            raise self.errors.pop(0)
        if method is REGISTER:
            return pb.RegisterReply(node_id=3, cluster_id="ab" * 16, routing=pb.Routing(lease_ms=1000))
        self.heard.set()
        return pb.HeartbeatReply()


async def test_a_full_disk_ends_no_process_of_which_the_manager_knows_a_higher_incarnation(tmp_path: Path) -> None:
    """As after the wall clock went back. The next one could not be stored, and no heartbeat was sent any more."""
    manager = Manager(tmp_path / "incarnation.new")
    process = Registration(manager, kind=NodeKind.META, node_id=3, domain="d", cluster_file=tmp_path / "cluster_id")
    await process.start("h:1")
    await manager.heard.wait()
    manager.errors = [NotFound("it was taken for dead"), StaleIncarnation("not newer")]
    process.report()
    while manager.errors:
        await asyncio.sleep(0.01)
    manager.heard.clear()
    await asyncio.wait_for(manager.heard.wait(), 5.0)
    assert manager.file.is_dir()
    await process.stop()
