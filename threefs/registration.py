"""A service's place in the cluster: it registers at the manager, then sends heartbeats."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.errors import AlreadyExists, Corrupt, NotFound, Retry, ThreefsError, WrongCluster
from threefs.ids import NodeId
from threefs.managers import Caller
from threefs.routing import NodeKind
from threefs.rpc.methods import HEARTBEAT, REGISTER
from threefs.wire import manager_pb2 as pb

_CALL_S = 5.0
_PAUSE_S = 0.2
HEARTBEATS_PER_T = 5
#: After a restart of many, an address may still count as that of a node which has moved: it will register again, or be
#: given up as silent.
_ADDRESS_TAKEN_S = 15.0
CLUSTER_ID_DIGITS = 32

_LOG = structlog.get_logger()


class Registration:
    """One process at the manager.

    `reports` says how its targets are, at each heartbeat; `leased` is told which of them may serve, and until when by
    the monotonic clock: half of T after the *sending* of the heartbeat that was acknowledged (R10).
    """

    def __init__(
        self,
        manager: Caller,
        *,
        kind: NodeKind,
        node_id: int,
        incarnation: int,
        domain: str,
        cluster_file: Path,
        reports: Callable[[], Sequence[pb.TargetReport]] = tuple,
        leased: Callable[[Sequence[int], float], None] = lambda targets, until: None,
        clock: Clock = CLOCK,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.cluster_id = read_cluster_id(cluster_file)
        self._manager = manager
        self._request = pb.RegisterRequest(
            node_id=node_id,
            kind=kind.value,
            incarnation=incarnation,
            cluster_id=self.cluster_id,
            domain=domain,
        )
        self.incarnation = incarnation
        self._cluster_file = cluster_file
        self._reports = reports
        self._leased = leased
        self._lease_s = 0.0
        self._clock = clock
        self._news = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None

    async def start(self, address: str, stores: Sequence[pb.Store] = ()) -> None:
        """Register the process that others reach at `address`, waiting for the manager as long as it takes, and begin
        to send heartbeats. `stores` says what its targets keep.

        Raises what waiting cannot heal: WrongCluster, NotFound (the plan has no such node), NotAuthorised,
        AlreadyExists (another node is alive at this address).
        """
        self._request.address = address
        self._request.stores.extend(stores)
        reply = await self._register()
        self._lease_s = reply.routing.lease_ms / 1000
        write_cluster_id(self._cluster_file, reply.cluster_id)
        self.node_id = NodeId(reply.node_id)
        self.cluster_id = reply.cluster_id
        self._heart = asyncio.create_task(self._beat())

    async def _register(self) -> pb.RegisterReply:
        began = self._clock.monotonic()
        said = ""
        while True:
            try:
                return await self._manager.call(REGISTER, self._request, timeout_s=_CALL_S)
            except AlreadyExists as error:
                if self._clock.monotonic() - began > _ADDRESS_TAKEN_S:
                    raise
                reason = str(error)
            except ThreefsError as error:
                if error.retry is Retry.NEVER:
                    raise
                reason = str(error)
            if reason != said:
                said = reason
                _LOG.info("waiting for the manager", error=reason)
            await self._clock.sleep(_PAUSE_S)

    async def _beat(self) -> None:
        while True:
            try:
                await self._send()
            except NotFound as error:
                _LOG.info("heartbeat not acknowledged", error=str(error))
                if self._request.kind == pb.META:  # it was silent for so long that it was forgotten
                    self.node_id = NodeId((await self._register()).node_id)
            except ThreefsError as error:
                _LOG.info("heartbeat not acknowledged", error=str(error))
            except Exception:  # a node that falls silent would be given up; say why and go on
                _LOG.exception("no heartbeat could be sent")
            await self._until_next()

    async def _send(self) -> None:
        self._news.clear()
        sent_at = self._clock.monotonic()
        request = pb.HeartbeatRequest(node_id=self.node_id, incarnation=self.incarnation, targets=list(self._reports()))
        reply = await self._manager.call(HEARTBEAT, request, timeout_s=self._heartbeat_s)
        self._leased(reply.leased, sent_at + self._lease_s / 2)

    @property
    def _heartbeat_s(self) -> float:
        return self._lease_s / HEARTBEATS_PER_T

    async def farewell(self) -> None:
        """Tell the manager at once what `reports` says now: that no target here serves any more."""
        await self.stop()
        if not self._lease_s:
            return  # it was never told that anything served
        try:
            await self._send()
        except ThreefsError as error:  # it will find out by itself
            _LOG.info("no farewell to the manager", error=str(error))

    async def _until_next(self) -> None:
        """The pause between heartbeats, unless there are news."""
        waits = [asyncio.create_task(self._clock.sleep(self._heartbeat_s)), asyncio.create_task(self._news.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def report(self) -> None:
        """Send a heartbeat now: the targets have something new to say."""
        self._news.set()

    async def stop(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)


def read_cluster_id(file: Path) -> str:
    """The cluster that this data directory belongs to; empty when it belongs to none yet."""
    try:
        text = file.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    if len(text) != CLUSTER_ID_DIGITS or set(text) - set("0123456789abcdef"):
        raise Corrupt(f"{file} does not hold a cluster id of {CLUSTER_ID_DIGITS} hex digits; whose data is this?")
    return text


def write_cluster_id(file: Path, cluster_id: str) -> None:
    """Durable and whole when it returns: half an id would be nobody's. Raises WrongCluster when another is there."""
    found = read_cluster_id(file)
    if found == cluster_id:
        return
    if found:
        raise WrongCluster(f"{file} says cluster {found}, the manager {cluster_id}")
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    with fresh.open("wb") as out:
        out.write(cluster_id.encode("ascii") + b"\n")
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
