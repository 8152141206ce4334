"""A service's place in the cluster: it registers at the manager, then sends heartbeats."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from threefs.background import BackgroundTasks
from threefs.cluster.incarnations import FILE_NAME, next_incarnation, write_durably
from threefs.cluster.manager_client import Caller
from threefs.env.clock import CLOCK, Clock
from threefs.errors import (
    AlreadyExists,
    Corrupt,
    NodeInUse,
    NotFound,
    Retry,
    StaleIncarnation,
    ThreefsError,
    WrongCluster,
)
from threefs.ids import NodeId
from threefs.leases import target_lease_s
from threefs.routing import NodeKind
from threefs.rpc.methods import GET_ROUTING, HEARTBEAT, REGISTER
from threefs.wire import manager_pb2 as pb

_CALL_S = 5.0
_PAUSE_S = 0.2
HEARTBEATS_PER_T = 5
_MAX_FAILURES = 3 * HEARTBEATS_PER_T
#: How long another process may count as this node, or as the one at this address. If it is dead it is given up as
#: silent after T; if it lives there is nothing to wait for.
_IN_USE_S = 15.0
_IN_USE_TS = 3  # at least so many T
CLUSTER_ID_DIGITS = 32
VERSION_NAME = "routing_version"

_LOG = structlog.get_logger()

#: Is told which targets hold a lease, and until when by the monotonic clock.
Grant = Callable[[Sequence[int], float], None]


def _grant_nothing(targets: Sequence[int], until: float) -> None:
    pass


class Registration:
    """One process at the manager.

    `reports` says how its targets are, at each heartbeat. `open_grant` is called just before a heartbeat is sent; what
    it returns is told which targets may serve, and until when: half of T after that moment (R10). `fenced` is called
    when the manager no longer takes this process for its node: no lease may be held after it. Then the process
    registers anew, with a higher incarnation.
    """

    def __init__(
        self,
        manager: Caller,
        *,
        kind: NodeKind,
        node_id: int,
        domain: str,
        cluster_file: Path,
        reports: Callable[[], Sequence[pb.TargetReport]] = tuple,
        stores: Callable[[], Sequence[pb.Store]] = tuple,
        open_grant: Callable[[], Grant] = lambda: _grant_nothing,
        fenced: Callable[[], None] = lambda: None,
        clock: Clock = CLOCK,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.cluster_id = read_cluster_id(cluster_file)
        self._manager = manager
        self._request = pb.RegisterRequest(node_id=node_id, kind=kind.value, cluster_id=self.cluster_id, domain=domain)
        self.incarnation = 0  # until it starts
        self._cluster_file = cluster_file
        self._newest_routing = _read_version(cluster_file.with_name(VERSION_NAME))  # of the routing, ever
        self._reports = reports
        self._stores = stores
        self._open_grant = open_grant
        self._fenced = fenced
        self._lease_s = 0.0
        self._clock = clock
        self._report_due = asyncio.Event()
        self._background = BackgroundTasks()

    async def start(self, address: str) -> None:
        """Register the process that others reach at `address`, waiting for the manager as long as it takes, and begin
        to send heartbeats.

        Raises what waiting cannot heal: WrongCluster, NotFound (the plan has no such node), NotAuthorised, NodeInUse
        (another process is this node), AlreadyExists (another node is alive at this address).
        """
        self._request.address = address
        self._draw_incarnation()
        reply = await self._register()
        write_cluster_id(self._cluster_file, reply.cluster_id)
        self.cluster_id = self._request.cluster_id = reply.cluster_id
        self._background.start("heartbeats", self._send_heartbeats())

    def _draw_incarnation(self, above: int = 0) -> None:
        """Take a higher incarnation than all before, durably, before anybody hears of it."""
        file = self._cluster_file.with_name(FILE_NAME)
        self.incarnation = next_incarnation(file, self._clock.wall_ns(), above)
        self._request.incarnation = self.incarnation

    async def _register(self) -> pb.RegisterReply:
        began = self._clock.monotonic()
        said = ""
        while True:
            del self._request.stores[:]
            self._request.stores.extend(self._stores())
            self._request.routing_version = self._newest_routing
            try:
                reply = await self._manager.call(REGISTER, self._request, timeout_s=_CALL_S)
                self._lease_s = reply.routing.lease_ms / 1000
                self.node_id = NodeId(reply.node_id)
                self._note_routing_version(reply.routing.version)
                return reply
            except StaleIncarnation as error:  # of a lost directory, or by a wall clock that went back
                reason = str(error)
                await self._draw_higher_incarnation()
            except (AlreadyExists, NodeInUse) as error:
                if self._clock.monotonic() - began > max(_IN_USE_S, _IN_USE_TS * self._lease_s):
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

    async def _draw_higher_incarnation(self) -> None:
        """The manager knows a higher incarnation of this node. If that one lived it would have said so."""
        try:
            reply = await self._manager.call(GET_ROUTING, pb.GetRoutingRequest(), timeout_s=_CALL_S)
        except ThreefsError as error:
            _LOG.info("the incarnation that is known cannot be asked for now", error=str(error))
            return
        self._lease_s = reply.routing.lease_ms / 1000
        node_id, address = self._request.node_id, self._request.address
        known = [n.incarnation for n in reply.routing.nodes if n.node_id == node_id or n.address == address]
        self._draw_incarnation(max(known, default=0))

    async def _send_heartbeats(self) -> None:
        failures = 0  # one after the other, that nobody has foreseen
        while True:
            try:
                await self._send()
                failures = 0
            except NotFound as error:
                _LOG.warning("the manager no longer takes this process for its node", error=str(error))
                await self._register_anew()
            except ThreefsError as error:
                _LOG.info("heartbeat not acknowledged", error=str(error))
            except Exception:
                _LOG.exception("no heartbeat could be sent")
                failures += 1
                if failures == _MAX_FAILURES:
                    raise  # a node that says nothing is of no use; a new process may have something to say
            await self._wait_interval()

    async def _register_anew(self) -> None:
        """Raises what waiting cannot heal: another process is this node now."""
        self._fenced()
        self._draw_incarnation()
        await self._register()
        self._report_due.set()

    async def _send(self) -> None:
        self._report_due.clear()
        sent_at = self._clock.monotonic()
        grant = self._open_grant()
        reply = await self._manager.call(HEARTBEAT, self._heartbeat(), timeout_s=self._heartbeat_s)
        self._note_routing_version(reply.routing_version)
        grant(reply.leased, sent_at + target_lease_s(self._lease_s))

    def _heartbeat(self, *, leaving: bool = False) -> pb.HeartbeatRequest:
        return pb.HeartbeatRequest(
            node_id=self.node_id,
            incarnation=self.incarnation,
            targets=list(self._reports()),
            leaving=leaving,
            routing_version=self._newest_routing,
        )

    def _note_routing_version(self, version: int) -> None:
        """Remember it, so that a manager with an older copy of its store is known (I15). A power cut or a full disk may
        take the last ones: then an older copy is not known by this node."""
        if version > self._newest_routing:
            self._newest_routing = version
            file = self._cluster_file.with_name(VERSION_NAME)
            fresh = file.with_name(file.name + ".new")
            try:
                fresh.write_text(f"{version}\n", encoding="ascii")
                fresh.replace(file)
            except OSError as error:
                _LOG.warning("the version of the routing cannot be kept", file=str(file), error=str(error))

    @property
    def _heartbeat_s(self) -> float:
        return self._lease_s / HEARTBEATS_PER_T

    async def announce_leaving(self) -> None:
        """Tell the manager at once what `reports` says now: that no target here serves any more."""
        await self.stop()
        if not self._lease_s:
            return  # it was never told that anything served
        try:
            await self._manager.call(HEARTBEAT, self._heartbeat(leaving=True), timeout_s=self._heartbeat_s)
        except ThreefsError as error:  # it will find out by itself
            _LOG.info("no farewell to the manager", error=str(error))

    async def _wait_interval(self) -> None:
        """The pause between heartbeats, unless there are news."""
        waits = [
            asyncio.create_task(self._clock.sleep(self._heartbeat_s)),
            asyncio.create_task(self._report_due.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def report(self) -> None:
        """Send a heartbeat now: the targets have something new to say."""
        self._report_due.set()

    async def stop(self) -> None:
        await self._background.stop()


def _read_version(file: Path) -> int:
    """0: none is known."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0


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
    write_durably(file, cluster_id.encode("ascii") + b"\n")
