"""The methods of the manager. The same functions answer over gRPC and over frames."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import structlog

from threefs.env.clock import CLOCK, Clock
from threefs.env.net import parse_address
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    AlreadyExists,
    Fenced,
    InvalidArgument,
    NotFound,
    NotPrimary,
    PeerClosed,
    StrangeStore,
    ThreefsError,
    Unavailable,
    WrongCluster,
)
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.kv.port import Engine
from threefs.routing import Chain, PublicState, Target
from threefs.rpc.methods import ADMIT_STORE, GET_ROUTING, GET_STATUS, HEARTBEAT, INIT, PRESENCE, REGISTER, Method
from threefs.rpc.server import Server
from threefs.rpc.session import Call
from threefs.wire import manager_pb2 as pb
from threefs_manager import metadata_store, placement, restoring
from threefs_manager.election import Election, Epoch
from threefs_manager.membership import Membership
from threefs_manager.overseer import Overseer
from threefs_manager.placement import FIRST_META_NODE, Disk
from threefs_manager.publication import Publication
from threefs_manager.store import Store, Writer

_MOST_NAME_CHARS = 255
_NODES_IN_WORDS = 5
_SETTLE_S = 1.0
_PAUSE_S = 0.2
T = TypeVar("T")

_LOG = structlog.get_logger()


class Serves(Protocol):
    def serve(self, method: Method[Any, Any], handler: Callable[[Any], Awaitable[Any]]) -> None: ...


class Manager:
    """One of the managers of a cluster. All can be asked; only the primary answers with more than NotPrimary."""

    def __init__(
        self,
        engine: Engine,
        election: Election,
        *,
        lease_s: float,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        on_cluster: Callable[[str], None] = lambda cluster_id: None,
    ) -> None:
        """`lease_s` is T of a cluster that is made here. `on_cluster` is told the cluster id once there is one."""
        self._engine = engine
        self._election = election
        self._lease_s = lease_s
        self._clock = clock
        self._random = random
        self._on_cluster = on_cluster
        self._publication = Publication()
        self._membership = Membership(clock)
        self._store: Store | None = None
        self._overseer: Overseer | None = None
        self.began = asyncio.Event()  # set while this manager is primary

    async def run(self) -> None:
        """Be primary whenever that is possible, until cancelled."""
        while True:
            epoch = await self._election.win()
            try:
                await self._term(epoch)
            finally:
                self._end_term()

    async def _term(self, epoch: Epoch) -> None:
        """Until another manager is primary."""
        tasks = [
            asyncio.create_task(self._election.hold()),
            asyncio.create_task(self._lead(Store(self._engine, epoch))),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, store: Store) -> None:
        wall_ns = self._clock.wall_ns()
        try:
            was_restored, routing = await _patiently(
                lambda: store.change(lambda writer: restoring.settle(writer, wall_ns)), self._clock
            )
        except Fenced:
            return  # another manager is primary already
        if was_restored:
            _LOG.warning("serving from a restored store", routing_version=routing.version)
        self._membership = Membership(self._clock)  # everyone has the time T from now on
        self._publication.begin(routing)
        self._overseer = Overseer(store, self._publication, self._membership, clock=self._clock)
        self._store = store
        if routing.cluster_id:
            self._on_cluster(routing.cluster_id)
        self.began.set()
        _LOG.info("primary", epoch=store.epoch)
        await self._overseer.run()

    def _end_term(self) -> None:
        self.began.clear()
        self._store = self._overseer = None
        self._publication.end()

    async def resign(self) -> None:
        """Give the lease up, so that another manager need not wait for its end."""
        epoch, self._election.epoch = self._election.epoch, None
        self._end_term()
        if epoch is not None:
            try:
                await epoch.resign()
            except ThreefsError as error:
                _LOG.info("the lease could not be given up", error=str(error))

    def bind(self, server: Serves) -> None:
        server.serve(INIT, self.init)
        server.serve(REGISTER, self.register)
        server.serve(HEARTBEAT, self.heartbeat)
        server.serve(GET_ROUTING, self.get_routing)
        server.serve(GET_STATUS, self.get_status)
        server.serve(ADMIT_STORE, self.admit_store)

    def bind_presence(self, server: Server) -> None:
        """Over frames only: there a connection that ends tells of the end of its process."""
        server.add(PRESENCE, self.presence)

    def _leading(self) -> tuple[Store, Overseer]:
        """Raises NotPrimary."""
        if self._store is None or self._overseer is None or not self._election.primary:
            raise NotPrimary("this manager is not the primary; another one is, or will be soon")
        return self._store, self._overseer

    async def init(self, request: pb.InitRequest) -> pb.InitReply:
        """Make the cluster. The same plan again is fine; another one is AlreadyExists."""
        plan = _in_order(request)
        store, _ = self._leading()
        disks = [Disk(NodeId(node.node_id), node.domain) for node in plan.storage]
        placement.check_plan(disks, plan.replicas, plan.targets_per_disk)
        fresh_id = self._random.token(16).hex()
        chains: list[Chain] = []
        targets: list[Target] = []
        if not self._publication.routing.cluster_id:  # for large plans it takes longer than a transaction may
            chains, targets = placement.place(disks, plan.replicas, plan.targets_per_disk)
            if crowded := placement.crowded(disks, plan.replicas, plan.targets_per_disk):
                _LOG.warning("domains too large: some chains have several targets in one", domains=crowded)

        async def write(writer: Writer) -> str:
            made = writer.cluster
            if made.cluster_id:
                await _check_same(writer, plan)
                return made.cluster_id
            made.cluster_id = fresh_id
            made.plan_digest = _digest(plan)
            made.replicas, made.targets_per_disk = plan.replicas, plan.targets_per_disk
            made.lease_ms = request.lease_ms or round(self._lease_s * 1000)
            made.next_meta_node = FIRST_META_NODE
            for disk in disks:
                writer.put_node(pb.Node(node_id=disk.node_id, kind=pb.STORAGE, domain=disk.domain))
            writer.put_chains(chains, targets, {TableId(1): [chain.chain_id for chain in chains]})
            return fresh_id

        cluster_id, routing = await store.change(write)
        self._publication.publish(routing)
        self._on_cluster(cluster_id)
        return pb.InitReply(cluster_id=cluster_id)

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        """A node has started at an address. Raises Unavailable before `init`, and while targets of an earlier
        incarnation have not been taken out of their chains (R8). Raises NotFound, WrongCluster, InvalidArgument,
        AlreadyExists."""
        _check_registration(request)
        store, overseer = self._leading()
        node = self._publication.routing.nodes.get(NodeId(request.node_id))
        ours = request.cluster_id in ("", self._publication.routing.cluster_id)
        if ours and node is not None and node.incarnation not in (0, request.incarnation):
            overseer.restarted(node.node_id)
            await overseer.settled(_SETTLE_S)

        async def write(writer: Writer) -> int:
            cluster = writer.cluster
            if not cluster.cluster_id:
                raise Unavailable("the cluster has no plan yet; `threefs up` or the Init call gives it one")
            if request.cluster_id and request.cluster_id != cluster.cluster_id:
                raise WrongCluster(
                    f"node {request.node_id} at {request.address} belongs to cluster {request.cluster_id}, "
                    f"this manager to {cluster.cluster_id}"
                )
            nodes = await writer.nodes()
            node = _registering(request, nodes, cluster)
            for other in nodes:
                if other.address == request.address and other.node_id != node.node_id:
                    if self._membership.alive(other.node_id, self._publication.routing.lease_s):
                        raise AlreadyExists(f"node {other.node_id} is at {request.address}")
                    other.address = ""  # it is gone, and its port has been taken
                    writer.put_node(other)
            await _take_stores(writer, request, started_before=node.incarnation not in (0, request.incarnation))
            domain = request.domain if request.kind == pb.META else node.domain
            if (node.address, node.incarnation, node.domain) != (request.address, request.incarnation, domain):
                node.address, node.incarnation, node.domain = request.address, request.incarnation, domain
                writer.put_node(node)
            return node.node_id

        node_id, routing = await store.change(write)
        self._publication.publish(routing)
        self._membership.greet(node_id, request.incarnation)
        return pb.RegisterReply(
            node_id=node_id, cluster_id=routing.cluster_id, routing=self._publication.message(routing)
        )

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """Grants leases. Raises NotPrimary; NotFound if the node has to register (again)."""
        _, overseer = self._leading()
        if not self._election.may_acknowledge:
            raise NotPrimary("the lease of this manager has not been renewed in time")
        routing = self._publication.routing
        node = routing.nodes.get(NodeId(request.node_id))
        if node is None:
            raise NotFound(f"no node {request.node_id} is in the plan")
        if node.incarnation != request.incarnation:
            raise NotFound(f"node {request.node_id} has been started anew since; register again")
        for report in request.targets:
            target = routing.targets.get(TargetId(report.target_id))
            if target is None or target.node_id != node.node_id:
                raise InvalidArgument(f"node {request.node_id} has no target {report.target_id}")
        leased, news = self._membership.hear(request.node_id, request.incarnation, list(request.targets), routing)
        overseer.look_at(news)
        return pb.HeartbeatReply(routing_version=routing.version, leased=leased)

    async def admit_store(self, request: pb.AdmitStoreRequest) -> pb.AdmitStoreReply:
        """A meta service serves from this store, or wants to. Raises StrangeStore."""
        store, _ = self._leading()
        cluster_id = self._publication.routing.cluster_id
        return await store.run(lambda tx: metadata_store.admit(tx, cluster_id, request))

    async def presence(self, call: Call[pb.PresenceRequest, pb.PresenceReply]) -> None:
        """Never answered. If its connection is ended by the other side, that process holds no lease any more."""
        self._leading()
        try:
            await asyncio.Event().wait()
        finally:
            if isinstance(call.lost, PeerClosed):
                self._vanished(call.request)

    def _vanished(self, request: pb.PresenceRequest) -> None:
        node = self._publication.routing.nodes.get(NodeId(request.node_id))
        if self._overseer is not None and node is not None and node.incarnation == request.incarnation:
            _LOG.info("a process has ended", node=node.node_id)
            self._membership.bury(node.node_id)
            self._overseer.restarted(node.node_id)

    async def get_routing(self, request: pb.GetRoutingRequest) -> pb.GetRoutingReply:
        self._leading()
        routing = await self._publication.newer_than(request.known_version, request.wait_ms)
        self._leading()
        if routing is None:
            return pb.GetRoutingReply()
        return pb.GetRoutingReply(routing=self._publication.message(routing))

    async def get_status(self, request: pb.GetStatusRequest) -> pb.GetStatusReply:
        store, _ = self._leading()
        known = self._publication.routing
        routing = self._publication.message(known)
        return pb.GetStatusReply(
            routing_version=routing.version,
            cluster_id=routing.cluster_id,
            manager_epoch=store.epoch,
            nodes=[self._membership.status(node, known.lease_s) for node in routing.nodes],
            chains=routing.chains,
            lease_ms=known.lease_ms,
        )


async def _take_stores(writer: Writer, request: pb.RegisterRequest, *, started_before: bool) -> None:
    """Note what the targets of a starting process keep. Raises Unavailable, NotFound."""
    for store in request.stores:
        target = await writer.target(store.target_id)
        if target is None or target.node_id != request.node_id:
            raise NotFound(f"node {request.node_id} has no target {store.target_id} in this cluster")
        state = (await writer.chain(ChainId(target.chain_id))).state(TargetId(target.target_id))
        if started_before and state in (PublicState.SERVING, PublicState.SYNCING):
            raise Unavailable(
                f"target {target.target_id} of node {request.node_id} is still {state.name.lower()} in its chain since "
                "the process was started before"
            )
        # A lastsrv target that has lost what it kept must not be taken for one that still has it.
        if target.store_id != store.store_id and (not target.store_id or state is not PublicState.LASTSRV):
            target.store_id = store.store_id
            writer.put_target(target)


async def _patiently(load: Callable[[], Awaitable[T]], clock: Clock) -> T:
    while True:
        try:
            return await load()
        except (Fenced, StrangeStore):
            raise
        except ThreefsError as error:
            _LOG.warning("the tables cannot be read now", error=str(error))
            await clock.sleep(_PAUSE_S)


def _in_order(request: pb.InitRequest) -> pb.InitRequest:
    """The plan as it is kept and compared: nodes by id, and each in a domain, if need be of its own."""
    plan = pb.InitRequest(replicas=request.replicas, targets_per_disk=request.targets_per_disk)
    for node in sorted(request.storage, key=lambda node: node.node_id):
        if len(node.domain) > _MOST_NAME_CHARS:
            raise InvalidArgument(f"the domain of node {node.node_id} has more than {_MOST_NAME_CHARS} characters")
        plan.storage.add(node_id=node.node_id, domain=node.domain or f"node-{node.node_id}")
    return plan


def _digest(plan: pb.InitRequest) -> bytes:
    """Equal for equal plans, whatever version of whichever library wrote them down."""
    said = [(node.node_id, node.domain) for node in plan.storage]
    text = json.dumps([plan.replicas, plan.targets_per_disk, said], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


async def _check_same(writer: Writer, plan: pb.InitRequest) -> None:
    """Raises AlreadyExists."""
    made = writer.cluster
    if made.plan_digest == _digest(plan):
        return
    made_from = pb.InitRequest(replicas=made.replicas, targets_per_disk=made.targets_per_disk)
    for node in await writer.nodes():
        if node.kind == pb.STORAGE:
            made_from.storage.add(node_id=node.node_id, domain=node.domain)
    raise AlreadyExists(
        f"the cluster {made.cluster_id} was made from another plan: {_in_words(made_from)}, not {_in_words(plan)}"
    )


def _in_words(plan: pb.InitRequest) -> str:
    nodes = ", ".join(f"{node.node_id} in {node.domain}" for node in plan.storage[:_NODES_IN_WORDS])
    more = ", ..." if len(plan.storage) > _NODES_IN_WORDS else ""
    return (
        f"{plan.replicas} replicas, {plan.targets_per_disk} targets per disk, {len(plan.storage)} storage nodes "
        f"({nodes}{more})"
    )


def _check_registration(request: pb.RegisterRequest) -> None:
    """Raises InvalidArgument."""
    if request.kind not in (pb.STORAGE, pb.META):
        raise InvalidArgument(f"a node registers as storage or meta service; {request.kind} is no kind of node")
    if len(request.address) > _MOST_NAME_CHARS or len(request.domain) > _MOST_NAME_CHARS:
        raise InvalidArgument(f"address and domain of a node have at most {_MOST_NAME_CHARS} characters")
    host, port = parse_address(request.address)
    if port == 0 or host in ("0.0.0.0", "::"):
        raise InvalidArgument(f"{request.address!r} is not an address that others can connect to")
    if request.incarnation == 0:
        raise InvalidArgument("a node registers with a random incarnation, new at every start, not 0")


def _registering(request: pb.RegisterRequest, nodes: list[pb.Node], cluster: pb.ClusterRecord) -> pb.Node:
    """The record of the node that registers; a meta service without an id gets one."""
    if request.kind == pb.META and request.node_id == 0:
        same = next((n for n in nodes if n.kind == pb.META and n.address == request.address), None)
        if same is not None:
            return same  # started again where it was, or the answer to this start was lost
        cluster.next_meta_node += 1
        return pb.Node(node_id=cluster.next_meta_node, kind=pb.META)
    node = next((n for n in nodes if n.node_id == request.node_id), None)
    if node is None or node.kind != request.kind:
        raise NotFound(
            f"the plan of this cluster has no {pb.NodeKind.Name(request.kind).lower()} node {request.node_id}"
        )
    return node
