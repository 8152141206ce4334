"""Registration of this process as a node: it registers at the manager, then sends heartbeats and gets leases."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from threefs import __version__
from threefs.background import BackgroundTasks
from threefs.cluster.incarnations import FILE_NAME, next_incarnation, write_durably
from threefs.cluster.manager_client import Caller
from threefs.env.clock import CLOCK, Clock
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    AlreadyExists,
    Corrupt,
    NodeInUse,
    NoSpace,
    NotFound,
    Retry,
    StaleIncarnation,
    StrangeStore,
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
#: For this long, and at least for three T, registration waits while another process counts as this node or has its
#: address. A dead process is given up after T of silence; waiting for one that lives is useless. It waits as long while
#: the manager does not know one of its targets: that is set aside when the routing of the manager has come.
_MIN_IN_USE_S = 15.0
_IN_USE_TS = 3
#: What is wrong with the manager, and not with this process: its disk is full, or its store is an older copy.
_OF_THE_MANAGER = (NoSpace, StrangeStore)
CLUSTER_ID_DIGITS = 32
VERSION_NAME = "routing_version"

_LOG = structlog.get_logger()

#: Called with the targets that hold a lease, and the end of the lease by the monotonic clock.
Grant = Callable[[Sequence[int], float], None]


def _grant_nothing(targets: Sequence[int], until: float) -> None:
    pass


class Registration:
    """The registration of one process.

    `reports` returns the states of its targets, for each heartbeat. `open_grant` is called just before a heartbeat is
    sent. It returns a function that gets the targets that may serve and the end of their lease, half of T after that
    moment (R10). `fenced` is called when the manager does not take this process for its node any more. It has to give
    up all leases. Then the process registers again, with a higher incarnation. `unreachable` returns the storage
    processes that this one cannot reach, `configuration` what the process runs with, `stray_stores` those that its disk
    has in vain, all for each heartbeat. While `silent` says so none is sent, and the leases end. `highest_target`
    returns, for each registration, the highest number of a target that the process was ever told of.
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
        unnamed_stores: Callable[[], Sequence[pb.Store]] = tuple,
        highest_target: Callable[[], int] = lambda: 0,
        open_grant: Callable[[], Grant] = lambda: _grant_nothing,
        fenced: Callable[[], None] = lambda: None,
        unreachable: Callable[[], Sequence[pb.UnreachablePeer]] = tuple,
        configuration: Callable[[], pb.ConfigurationReport | None] = lambda: None,
        stray_stores: Callable[[], pb.StrayStores | None] = lambda: None,
        silent: Callable[[], bool] = lambda: False,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.cluster_id = read_cluster_id(cluster_file)
        self._manager = manager
        self._request = pb.RegisterRequest(
            node_id=node_id, kind=kind.value, cluster_id=self.cluster_id, domain=domain, release=__version__
        )
        self.incarnation = 0  # 0 until it starts
        self._cluster_file = cluster_file
        self._newest_routing = _read_version(cluster_file.with_name(VERSION_NAME))  # ever seen
        self._reports = reports
        self._stores = stores
        self._unnamed_stores = unnamed_stores
        self._highest_target = highest_target
        self._open_grant = open_grant
        self._fenced = fenced
        self._unreachable = unreachable
        self._configuration = configuration
        self._stray_stores = stray_stores
        self._silent = silent
        self._lease_s = 0.0
        self._clock = clock
        self._random = random
        self._report_due = asyncio.Event()
        self._background = BackgroundTasks()

    async def start(self, address: str) -> None:
        """Register the process, which others reach at `address`, and begin to send heartbeats. It waits for the manager
        without a limit.

        Raises errors that waiting does not heal: WrongCluster, NotFound (the plan has no such node), NotAuthorised,
        NodeInUse (another process is this node), AlreadyExists (another node is alive at this address).
        """
        self._request.address = address
        self._draw_incarnation()
        reply = await self._register()
        write_cluster_id(self._cluster_file, reply.cluster_id)
        self.cluster_id = self._request.cluster_id = reply.cluster_id
        self._background.start("heartbeats", self._send_heartbeats())

    def _draw_incarnation(self, above: int = 0) -> None:
        """Take a higher incarnation than all before. It is durable before it is sent."""
        file = self._cluster_file.with_name(FILE_NAME)
        self.incarnation = next_incarnation(file, self._clock.wall_ns(), self._random, above)
        self._request.incarnation = self.incarnation

    def _try_draw_incarnation(self, above: int = 0) -> bool:
        """The same once the process runs: a full disk gets room again, and until then the manager refuses the old one
        again. Whether it was stored."""
        try:
            self._draw_incarnation(above)
        except OSError as error:
            _LOG.warning("no higher incarnation can be stored", error=str(error))
            return False
        return True

    async def _register(self) -> pb.RegisterReply:
        said = ""
        refused_at: float | None = None  # the first time in a row
        while True:
            del self._request.stores[:]
            self._request.stores.extend(self._stores())
            del self._request.unnamed_stores[:]
            self._request.unnamed_stores.extend(self._unnamed_stores())
            self._request.highest_target = self._highest_target()
            self._request.routing_version = self._newest_routing
            try:
                reply = await self._manager.call(REGISTER, self._request, timeout_s=_CALL_S)
                self._lease_s = reply.routing.lease_ms / 1000
                self.node_id = NodeId(reply.node_id)
                self._note_routing_version(reply.routing.version)
                return reply
            except StaleIncarnation as error:  # the directory was lost, or the wall clock went back
                reason = str(error)
                await self._draw_higher_incarnation()
            except (AlreadyExists, NodeInUse, NotFound) as error:
                if isinstance(error, NotFound) and not self._request.stores:
                    raise
                now = self._clock.monotonic()
                refused_at = now if refused_at is None else refused_at
                if now - refused_at > max(_MIN_IN_USE_S, _IN_USE_TS * self._lease_s):
                    raise
                reason = str(error)
            except ThreefsError as error:
                if error.retry is Retry.NEVER and not isinstance(error, _OF_THE_MANAGER):
                    raise
                refused_at = None  # a manager that was away begins anew to find out who is dead
                reason = str(error)
            if reason != said:
                said = reason
                _LOG.info("waiting for the manager", error=reason)
            await self._clock.sleep(_PAUSE_S)

    async def _draw_higher_incarnation(self) -> None:
        """The manager knows a higher incarnation of this node, which is dead: otherwise the error would be
        NodeInUse."""
        try:
            reply = await self._manager.call(GET_ROUTING, pb.GetRoutingRequest(), timeout_s=_CALL_S)
        except ThreefsError as error:
            _LOG.info("the newest incarnation of this node cannot be asked for now", error=str(error))
            return
        self._lease_s = reply.routing.lease_ms / 1000
        node_id, address = self._request.node_id, self._request.address
        known = [n.incarnation for n in reply.routing.nodes if n.node_id == node_id or n.address == address]
        self._try_draw_incarnation(max(known, default=0))

    async def _send_heartbeats(self) -> None:
        failures = 0  # unexpected ones in a row
        while True:
            try:
                self._report_due.clear()
                if not self._silent():
                    await self._send()
                failures = 0
            except NotFound as error:
                _LOG.warning("the manager does not know this process as its node any more", error=str(error))
                await self._register_anew()
            except ThreefsError as error:
                _LOG.info("a heartbeat was not acknowledged", error=str(error))
            except Exception:
                _LOG.exception("no heartbeat could be sent")
                failures += 1
                if failures == _MAX_FAILURES:
                    raise  # a node without heartbeats is useless, so the process ends and is started again
            await self._wait_interval()

    async def _register_anew(self) -> None:
        """Register with a higher incarnation. Raises errors that waiting does not heal: another process is this node
        now."""
        self._fenced()
        if self._try_draw_incarnation():
            await self._register()
            self._report_due.set()

    async def _send(self) -> None:
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
            unreachable=self._unreachable(),
            release=__version__,
            clock_ms=round(self._clock.monotonic() * 1000),
            configuration=self._configuration(),
            stray_stores=self._stray_stores(),
        )

    def _note_routing_version(self, version: int) -> None:
        """Keep the version, so that this node recognizes a manager with an older copy of its store (I15). A power cut
        or a full disk may lose the last versions; then this node does not recognize it."""
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
        """Send a last heartbeat, in which no target serves any more."""
        await self.stop()
        if not self._lease_s:
            return  # this process has never registered
        try:
            await self._manager.call(HEARTBEAT, self._heartbeat(leaving=True), timeout_s=self._heartbeat_s)
        except ThreefsError as error:  # then the silence will tell the manager
            _LOG.info("the manager did not get the last heartbeat", error=str(error))

    async def _wait_interval(self) -> None:
        """Wait for the next heartbeat, which `report` makes due at once."""
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
        """Send a heartbeat now, because the states of targets have changed."""
        self._report_due.set()

    async def stop(self) -> None:
        await self._background.stop()


def _read_version(file: Path) -> int:
    """The version in the file; 0 if there is none."""
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
        raise Corrupt(
            f"{file} does not hold a cluster id of {CLUSTER_ID_DIGITS} hex digits, so the cluster of this data is "
            "unknown; write the id into the file (`threefs status` shows it)"
        )
    return text


def write_cluster_id(file: Path, cluster_id: str) -> None:
    """Write the id durably. Raises WrongCluster if the file has another id."""
    found = read_cluster_id(file)
    if found == cluster_id:
        return
    if found:
        raise WrongCluster(f"the data belongs to cluster {found} ({file}), the manager to cluster {cluster_id}")
    write_durably(file, cluster_id.encode("ascii") + b"\n")
