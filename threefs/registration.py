"""A service's place in the cluster: it registers at the manager, then sends heartbeats."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.errors import Retry, ThreefsError, WrongCluster
from threefs.ids import NodeId
from threefs.routing import NodeKind
from threefs.rpc.methods import HEARTBEAT, REGISTER, Method, Rep, Req
from threefs.wire import manager_pb2 as pb

_CALL_S = 5.0
_LOG = structlog.get_logger()


class Caller(Protocol):
    """The manager, over either binding."""

    async def call(self, method: Method[Req, Rep], request: Req, *, timeout_s: float) -> Rep: ...


class Registration:
    """One process at the manager. `reports` says how its targets are, at each heartbeat."""

    def __init__(
        self,
        manager: Caller,
        *,
        kind: NodeKind,
        node_id: int,
        address: str,
        incarnation: int,
        domain: str,
        cluster_file: Path,
        reports: Callable[[], Sequence[pb.TargetReport]] = tuple,
        heartbeat_s: float = 2.0,
        clock: Clock = CLOCK,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.cluster_id = read_cluster_id(cluster_file)
        self._manager = manager
        self._request = pb.RegisterRequest(
            node_id=node_id,
            kind=kind.value,
            address=address,
            incarnation=incarnation,
            cluster_id=self.cluster_id,
            domain=domain,
        )
        self._incarnation = incarnation
        self._cluster_file = cluster_file
        self._reports = reports
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._heart: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register, waiting for the manager as long as it takes, and begin to send heartbeats.

        Raises what waiting cannot heal: WrongCluster, NotFound (the plan has no such node), NotAuthorised.
        """
        while True:
            try:
                reply = await self._manager.call(REGISTER, self._request, timeout_s=_CALL_S)
                break
            except ThreefsError as error:
                if error.retry is Retry.NEVER:
                    raise
                _LOG.info("waiting for the manager", error=str(error))
            await self._clock.sleep(0.2)
        if self.cluster_id and self.cluster_id != reply.cluster_id:
            raise WrongCluster(f"{self._cluster_file} says {self.cluster_id}, the manager {reply.cluster_id}")
        self.node_id = NodeId(reply.node_id)
        self.cluster_id = reply.cluster_id
        write_cluster_id(self._cluster_file, reply.cluster_id)
        self._heart = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            request = pb.HeartbeatRequest(
                node_id=self.node_id, incarnation=self._incarnation, targets=list(self._reports())
            )
            try:
                await self._manager.call(HEARTBEAT, request, timeout_s=_CALL_S)
            except ThreefsError as error:
                _LOG.info("heartbeat not acknowledged", error=str(error))
            await self._clock.sleep(self._heartbeat_s)

    async def stop(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)


def read_cluster_id(file: Path) -> str:
    """The cluster that this data directory belongs to; empty when it belongs to none yet."""
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


def write_cluster_id(file: Path, cluster_id: str) -> None:
    if read_cluster_id(file) != cluster_id:
        file.write_text(cluster_id + "\n", encoding="ascii")
