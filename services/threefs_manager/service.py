"""The service of the manager: one set of handlers answers over gRPC and over frames."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from threefs import __version__, configuration, store_disk
from threefs import routing as routing_module
from threefs.background import BackgroundTasks, cancel_and_wait
from threefs.configuration import Value
from threefs.env.clock import CLOCK, Clock
from threefs.env.net import Net, RealNet
from threefs.env.random import RANDOM, Random
from threefs.errors import (
    Fenced,
    InvalidArgument,
    NotFound,
    NotPrimary,
    PeerClosed,
    StrangeStore,
    ThreefsError,
    Unavailable,
)
from threefs.ids import ChainId, NodeId
from threefs.kv.engine_api import Engine
from threefs.routing import Node, NodeKind
from threefs.rpc import methods
from threefs.rpc.preencoded import PreencodedReply
from threefs.rpc.server import Server
from threefs.rpc.server_connection import Call
from threefs.wire import manager_pb2 as pb
from threefs_manager import chain_tables, new_cluster
from threefs_manager.chains import holds, moves
from threefs_manager.chains.controller import ChainController
from threefs_manager.configuration_versions import ConfigurationKeeper, Handler, Serves
from threefs_manager.election import Election, Epoch
from threefs_manager.nodes import membership, registry
from threefs_manager.nodes.client_reports import ClientReports
from threefs_manager.nodes.failure_detector import FailureDetector
from threefs_manager.nodes.presence import PresenceCalls, nobody_listens
from threefs_manager.remarks import Remarks
from threefs_manager.routing_publisher import RoutingPublisher, shielded, term_number
from threefs_manager.stale_stores import metadata_store
from threefs_manager.stale_stores.manager_store import StaleStoreDetector
from threefs_manager.stale_stores.target_stores import StoreGenerations, lost_survivors
from threefs_manager.store import restored_versions
from threefs_manager.store.cluster_store import Store, Writer, retry_forever
from threefs_manager.store.restore_inquiry import Inquiry

_SETTLE_S = 1.0
_LOG = structlog.get_logger()


class Manager:
    """One of the managers of a cluster. Each can be called; all but the primary answer NotPrimary."""

    def __init__(
        self,
        engine: Engine,
        election: Election,
        *,
        lease_s: float,
        clock: Clock = CLOCK,
        random: Random = RANDOM,
        net: Net | None = None,
        expected_cluster_id: str = "",
        on_cluster: Callable[[str], None] = lambda cluster_id: None,
        place: chain_tables.Place = chain_tables.place_in_thread,
        own: Mapping[str, Value] | None = None,
    ) -> None:
        """`lease_s` is T of a cluster that is made here. `expected_cluster_id` is the cluster that the data directory
        belongs to, if any. `on_cluster` is called with the cluster id once there is one. `own` has
        the values of the settings file."""
        self._engine = engine
        self._election = election
        self._lease_s = lease_s
        self._expected_cluster_id = expected_cluster_id  # of the data directory, or of nodes that register here
        self._clock = clock
        self._random = random
        self._on_cluster = on_cluster
        self._place = place
        self._publisher = RoutingPublisher()
        self._net: Net = net or RealNet()
        self._sole_service = metadata_store.SoleService(self._net, clock)
        self._failure_detector = FailureDetector(clock)
        self._presence_calls = PresenceCalls()
        self._remarks = Remarks(clock)
        self._clients = ClientReports(clock)
        self._configuration = ConfigurationKeeper(lambda: self._require_primary()[0], self._publisher, own or {}, clock)
        self._probes = BackgroundTasks()  # of processes whose connection has ended
        self._stale_store = StaleStoreDetector(routing_module.EMPTY, clock)
        self._store: Store | None = None
        self._controller: ChainController | None = None
        self._inquiry: Inquiry | None = None  # until all nodes have reported what a restored store lacks
        self.leading = asyncio.Event()  # set while this manager is primary

    async def run(self) -> None:
        """Campaign, and serve each term that is won, until cancelled or after a resignation."""
        while not self._election.is_over:
            epoch = await self._election.campaign()
            try:
                await self._term(epoch)
            finally:
                self._end_term()

    async def _term(self, epoch: Epoch) -> None:
        """Serve one term, until another manager is primary."""
        leading = self._lead(Store(self._engine, epoch))
        tasks = [asyncio.create_task(work) for work in (self._election.keep_renewing(), leading)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel_and_wait(*tasks)

    async def _lead(self, store: Store) -> None:
        wall_ns = self._clock.wall_ns()
        raise_version = partial(restored_versions.raise_routing_version, wall_ns=wall_ns)
        try:
            was_restored, routing = await retry_forever(lambda: store.change(raise_version), self._clock)
        except Fenced:
            return  # another manager has taken over already
        if self._expected_cluster_id not in ("", routing.cluster_id):
            raise StrangeStore(restored_versions.wrong_store_message(self._expected_cluster_id, routing.cluster_id))
        seen, unreadable = await retry_forever(store.load_generations, self._clock)
        generations = StoreGenerations(seen, lost_survivors(unreadable, routing))
        self._failure_detector = FailureDetector(self._clock, generations)
        self._sole_service = metadata_store.SoleService(self._net, self._clock)  # others may have admitted one since
        self._publisher.start_term(routing, term_number(store.epoch, wall_ns))
        self._stale_store = StaleStoreDetector(routing, self._clock)
        self._controller = controller = ChainController(
            store, self._publisher, self._failure_detector, self._stale_store, clock=self._clock
        )
        await retry_forever(controller.move_executor.load, self._clock)
        await retry_forever(lambda: self._configuration.start_term(store), self._clock)
        controller.move_executor.follow(self._configuration.move_bounds, self._configuration.kept_bytes)
        controller.on_caught_up = self._on_caught_up
        controller.begin_to_listen()  # the store may have been away for longer than T
        self._store = store
        self._inquiry = Inquiry(routing, self._clock) if was_restored else None
        if routing.cluster_id:
            self._on_cluster(routing.cluster_id)
        self.leading.set()
        _LOG.info("primary", epoch=store.epoch)
        with contextlib.suppress(Fenced):
            await controller.run(partial(self._inquire, store, self._inquiry))

    async def _on_caught_up(self) -> None:
        await self._configuration.catch_up()
        if cluster_id := self._publisher.routing.cluster_id:  # perhaps it was made just now
            self._on_cluster(cluster_id)

    async def _inquire(self, store: Store, inquiry: Inquiry | None) -> None:
        """Serve nothing from a restored store before it is known what it lacks. Raises Fenced, StrangeStore."""
        if inquiry is None:
            return
        if not inquiry.done.is_set():
            _LOG.warning("nothing is served yet", reason=inquiry.reason())
        await inquiry.wait_done(self._stale_store.check_fresh)
        known, wall_ns = self._publisher.routing, self._clock.wall_ns()
        adopted = restored_versions.adopted_chains(known, inquiry.newest_chains, wall_ns)
        routing = await restored_versions.adopt(store, adopted, inquiry.highest_target, self._clock)
        self._publisher.publish(routing)
        self._failure_detector.unfence(routing)
        self._inquiry = None
        _LOG.warning("serving from a restored store", routing_version=routing.version)

    def _end_term(self) -> None:
        self.leading.clear()
        self._store = self._controller = self._inquiry = None
        self._publisher.end_term()
        self._stale_store.end_term()
        self._presence_calls.end_all()
        self._clients.clear()

    async def resign(self) -> None:
        """End the term and give the lease up, so that another manager need not wait for its end."""
        epoch = self._election.withdraw()
        self._end_term()
        if epoch is not None:
            try:
                await epoch.resign()
            except ThreefsError as error:
                _LOG.info("the lease could not be given up", error=str(error))

    def bind(self, server: Serves) -> None:
        server.serve(methods.INIT, shielded(self.init))
        server.serve(methods.REGISTER, shielded(self.register))
        server.serve(methods.HEARTBEAT, self.heartbeat)
        server.serve(methods.GET_ROUTING, self.answer_routing)
        server.serve(methods.GET_STATUS, self.get_status)
        server.serve(methods.ACCEPT_LOSS, self._after_reports(self.accept_loss))
        server.serve(methods.ACCEPT_UNHEARD, self.accept_unheard)
        server.serve(methods.ADD_NODES, self._after_reports(self.add_nodes, self._changes_nothing))
        server.serve(methods.SET_DRAINING, self._after_reports(self.set_draining))
        server.serve(methods.REMOVE_NODE, self._after_reports(self.remove_node))
        server.serve(methods.REBALANCE, self._after_reports(self.rebalance))
        server.serve(methods.SET_MIN_REPLICAS, self._after_reports(self.set_min_replicas))
        server.serve(methods.CREATE_TABLE, self._after_reports(self.create_table))
        server.serve(methods.SET_REPLICAS, self._after_reports(self.set_replicas))
        server.serve(methods.SET_DEFAULT_TABLE, self._after_reports(self.set_default_table))
        server.serve(methods.CHAIN_EVENTS, self.chain_events)
        server.serve(methods.HOLD_TARGETS, self._after_reports(self.hold_targets))
        server.serve(methods.ADMIT_STORE, self._after_reports(self.admit_store, lambda request: not request.restored))
        server.serve(methods.REPORT_BACKUP, self.report_backup)
        self._configuration.bind(server, self._after_reports)

    def _after_reports(self, change: Handler, at_once: Callable[[Any], bool] = lambda request: False) -> Handler:
        """What an administrator changes waits for the nodes that would know of a newer store, which would lack it. If
        the call ends meanwhile, nothing is changed."""

        async def answer(request: Any) -> Any:
            store, _ = self._require_primary()
            if not at_once(request):
                await self._stale_store.wait_heard()
            if self._require_primary()[0] is not store:
                raise NotPrimary("this manager has become primary anew; ask again")  # its store may be another one now
            return await shielded(change)(request)

        return answer

    def _changes_nothing(self, request: pb.AddNodesRequest) -> bool:
        """`threefs up` names all nodes at each start, before it starts them."""
        return membership.are_known(self._publisher.routing, request)

    def bind_presence(self, server: Server) -> None:
        """Serve presence calls. Over frames only: there the end of a connection shows the end of its process."""
        server.add(methods.PRESENCE, self.presence)

    def _require_primary(self) -> tuple[Store, ChainController]:
        """Raises NotPrimary."""
        if self._store is None or self._controller is None or not self._election.is_primary:
            raise NotPrimary("this manager is not the primary; ask the other managers")
        return self._store, self._controller

    async def init(self, request: pb.InitRequest) -> pb.InitReply:
        """Make the cluster. The same plan again succeeds, another one is AlreadyExists."""
        store, _ = self._require_primary()
        if self._expected_cluster_id and not self._publisher.routing.cluster_id:
            raise StrangeStore(restored_versions.wrong_store_message(self._expected_cluster_id, ""))
        cluster_id = await new_cluster.init(store, self._publisher, self._random, round(self._lease_s * 1000), request)
        self._on_cluster(cluster_id)
        return pb.InitReply(cluster_id=cluster_id)

    async def register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        """A process registers as a node at an address.

        Raises Unavailable before `init`, before all that serve were heard, and while targets of an earlier incarnation
        are still in their chains (R8). Raises NodeInUse while another process lives as this node.
        Raises StaleIncarnation, NotFound, WrongCluster, InvalidArgument, AlreadyExists.
        """
        registry.check_request(request)
        store, controller = self._require_primary()
        failure_detector, routing = self._failure_detector, controller.routing_to_judge()
        if not routing.cluster_id:  # an empty store in the place of a cluster's: `init` is refused here
            self._expected_cluster_id = self._expected_cluster_id or request.cluster_id
        ours = request.cluster_id == routing.cluster_id != ""
        if ours:  # what processes of other clusters have seen proves nothing
            self._stale_store.check(request, keeps_chains=False)  # another process may be this node
        known = routing.nodes.get(NodeId(request.node_id))
        if request.cluster_id in ("", routing.cluster_id):  # others are refused below
            self._inquire_node(request)
            if ours:
                self._stale_store.check_chains(routing, request)
            if known is not None:
                registry.check_incarnation(request, known, failure_detector, routing.lease_s)
            if request.kind == pb.STORAGE:
                self._stale_store.on_heard(request.node_id)
            self._stale_store.check_heard()
            if known is not None and known.incarnation not in (0, request.incarnation):
                failure_detector.mark_dead(known.node_id, known.incarnation)
                controller.on_process_death(known.node_id)
                await controller.wait_idle(_SETTLE_S)

        async def write(writer: Writer) -> int:
            return await registry.register_node(writer, request, failure_detector, self._publisher.routing.lease_s)

        node_id, routing = await store.change(write)
        self._publisher.publish(routing)
        version = self._stale_store.on_published(routing.version)
        failure_detector.on_register(node_id, request.incarnation, request.release)
        self._presence_calls.end_others(node_id, request.incarnation)
        known_now = pb.Routing(version=version, cluster_id=routing.cluster_id, lease_ms=routing.lease_ms)
        return pb.RegisterReply(node_id=node_id, cluster_id=routing.cluster_id, routing=known_now)

    def _inquire_node(self, request: pb.RegisterRequest) -> None:
        """With a restored store no storage node registers before all have reported their chains. Raises Unavailable."""
        if self._inquiry is not None and request.kind == pb.STORAGE:
            self._inquiry.on_register(request)
            self._stale_store.on_heard(request.node_id)
            raise Unavailable(self._inquiry.reason())

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """Grants leases. Raises NotPrimary; NotFound if the node has to register (again)."""
        controller = self._controller if self._store is not None else None
        if controller is None or not self._election.may_acknowledge:
            self._failure_detector.on_refused(request, self._publisher.routing)
            self._stale_store.on_refused(request.node_id)
            raise NotPrimary("this manager is not primary, or its lease has not been renewed in time; ask the others")
        routing = controller.routing_to_judge()
        node = self._require_current(request.node_id, request.incarnation)
        # One that this store does not know registers again, which checks as well.
        self._stale_store.check(request, keeps_chains=node.kind is NodeKind.STORAGE)
        if self._inquiry is not None and node.kind is NodeKind.STORAGE:
            raise NotFound("the store of the manager was restored: register again, and report what is known of chains")
        registry.check_reports(request, routing)
        self._stale_store.check_chains(routing, request)
        leased, changed = self._failure_detector.on_heartbeat(
            node.node_id, node.incarnation, list(request.targets), routing, request.routing_version, request.release
        )
        self._failure_detector.on_process(request)
        if request.leaving:
            leased = []
        controller.enqueue(changed)
        version = self._stale_store.on_published(routing.version)
        return pb.HeartbeatReply(routing_version=version, leased=self._stale_store.renewable(leased, request))

    async def admit_store(self, request: pb.AdmitStoreRequest) -> pb.AdmitStoreReply:
        """A meta service asks whether it may serve from its metadata store. Raises StrangeStore, NodeInUse."""
        store, controller = self._require_primary()
        admit = partial(metadata_store.admit, cluster_id=self._publisher.routing.cluster_id, request=request)
        try:
            reply = await self._sole_service.admit(
                request.sole_address, controller.routing_to_judge, self._failure_detector, lambda: store.run(admit)
            )
        except StrangeStore as error:
            self._remarks.on_refusal(request.address, error.message)
            raise
        self._remarks.on_admission(request.address)
        return reply

    async def report_backup(self, request: pb.ReportBackupRequest) -> pb.ReportBackupReply:
        """A backup says how it is. Raises InvalidArgument."""
        self._require_primary()
        self._remarks.on_backup(request)
        return pb.ReportBackupReply()

    async def wait_own_store(self) -> None:
        """A backup gets the store after this. Raises NotPrimary, StrangeStore; Unavailable while it may be another."""
        self._require_primary()
        await self._stale_store.wait_confirmed(self._publisher.routing.cluster_id, self._inquiry)

    def _require_current(self, node_id: int, incarnation: int) -> Node:
        """The node with this incarnation. Raises NotFound if another one is registered, or this one was marked dead."""
        node = self._publisher.routing.nodes.get(NodeId(node_id))
        if node is None:
            raise NotFound(f"node {node_id} is not in the plan of this cluster")
        if node.incarnation != incarnation:
            raise NotFound(f"node {node_id} was started anew at {node.address}; this incarnation has to register again")
        if self._failure_detector.is_marked_dead(node_id, incarnation):
            raise NotFound(f"node {node_id} was taken for dead; register again")
        return node

    async def presence(self, call: Call[pb.PresenceRequest, pb.PresenceReply]) -> None:
        """A call that stays open as long as its process lives. It ends with NotPrimary or NotFound when it is of no use
        any more. If the other side has ended its connection, that process may be dead."""
        self._require_primary()
        node = self._require_current(call.request.node_id, call.request.incarnation)
        try:
            await self._presence_calls.wait_ended(node.node_id, node.incarnation)
        finally:
            if isinstance(call.lost, PeerClosed):
                self._probes.attempt(f"probe of node {node.node_id}", self._probe(node))

    async def _probe(self, node: Node) -> None:
        """Find out whether a process whose connection has ended is dead.

        The connection may have been ended by its kernel, or by a device on the way. A process that lives listens at
        its address. If none listens there, it is dead and holds no lease any more.
        """
        controller = self._controller
        if controller is None or not await nobody_listens(self._net, node.address, self._clock):
            return
        known = self._publisher.routing.nodes.get(node.node_id)
        if self._controller is controller and known is not None and known.incarnation == node.incarnation:
            _LOG.info("a process has ended", node=node.node_id)
            self._failure_detector.mark_dead(node.node_id, node.incarnation)
            controller.on_process_death(node.node_id)

    async def get_routing(self, request: pb.GetRoutingRequest) -> pb.GetRoutingReply:
        return (await self.answer_routing(request)).parsed()

    async def answer_routing(self, request: pb.GetRoutingRequest) -> PreencodedReply[pb.GetRoutingReply]:
        self._require_primary()
        with self._clients.asking(request, self._publisher.routing.lease_s):
            reply = await self._publisher.answer(request)
        self._require_primary()
        return reply

    async def get_status(self, request: pb.GetStatusRequest) -> pb.GetStatusReply:
        store, controller = self._require_primary()
        routing = self._publisher.message(known := controller.routing_to_judge())
        reasons = controller.links.reasons()
        return pb.GetStatusReply(
            routing_version=routing.version,
            cluster_id=routing.cluster_id,
            manager_epoch=store.epoch,
            nodes=[self._failure_detector.status(node, known.lease_s, reasons) for node in routing.nodes],
            chains=routing.chains,
            lease_ms=known.lease_ms,
            tables=routing.tables,
            default_table=routing.default_table,
            awaited_nodes=self._inquiry.awaited_nodes if self._inquiry is not None else (),
            failure=controller.failure,
            store_disk=store_disk.describe(self._engine),
            link_removals=controller.links.removals,
            manager_release=__version__,
            backups=self._remarks.backups(),
            refused_stores=self._remarks.refusals(),
            moves=map(moves.to_wire, controller.move_executor.moves.values()),
            configuration=configuration.to_wire(self._configuration.current),
            configuration_age_ms=self._configuration.age_ms,
            manager_configuration=self._configuration.applied.report,
            move_progress=controller.move_executor.progress(),
            more_moves=controller.move_executor.plans_more,
            rebalance_awaits=controller.move_executor.awaited_nodes,
            clients=self._clients.heard(known.lease_s) if request.clients else (),
            more_clients=request.clients and self._clients.are_more,
        )

    async def accept_loss(self, request: pb.AcceptLossRequest) -> pb.AcceptLossReply:
        """Let a chain go on without the disks that served it last. Raises NotFound, InvalidArgument, Unavailable."""
        _, controller = self._require_primary()
        if self._inquiry is not None:
            raise Unavailable(self._inquiry.reason())
        return pb.AcceptLossReply(chain=routing_module.chain_to_wire(await controller.accept_loss(request)))

    async def accept_unheard(self, request: pb.AcceptUnheardRequest) -> pb.AcceptUnheardReply:
        """Let a restored store go on without the reports of these nodes. Raises InvalidArgument, Unavailable."""
        self._require_primary()
        if self._inquiry is None:
            raise InvalidArgument("no node is awaited: the store was not restored, or all nodes have reported")
        if request.dry_run:
            return pb.AcceptUnheardReply(awaited_nodes=self._inquiry.awaited_without(request.nodes))
        self._inquiry.stop_awaiting(request.nodes)
        awaited = self._inquiry.awaited_nodes
        _LOG.warning("an administrator goes on without reports of nodes", nodes=list(request.nodes), awaited=awaited)
        return pb.AcceptUnheardReply(awaited_nodes=awaited)

    async def set_min_replicas(self, request: pb.SetMinReplicasRequest) -> pb.SetMinReplicasReply:
        """Set how many targets of a chain must serve for it to take writes. Raises NotFound, InvalidArgument."""
        store, _ = self._require_primary()
        return await chain_tables.set_min_replicas(store, self._publisher, request)

    async def create_table(self, request: pb.CreateTableRequest) -> pb.CreateTableReply:
        """Make a table of new chains. Raises InvalidArgument, Unavailable."""
        store, _ = self._require_primary()
        return await chain_tables.create_table(store, self._publisher, self._place, request)

    async def set_default_table(self, request: pb.SetDefaultTableRequest) -> pb.SetDefaultTableReply:
        """New files take this table. Raises NotFound, Unavailable."""
        store, _ = self._require_primary()
        return await chain_tables.set_default_table(store, self._publisher, request)

    async def set_replicas(self, request: pb.SetReplicasRequest) -> pb.SetReplicasReply:
        """Have chains of a table gain or lose copies. Raises NotFound, InvalidArgument."""
        store, controller = self._require_primary()
        planned = await chain_tables.set_replicas(store, self._publisher, controller.move_executor, request)
        return pb.SetReplicasReply(moves=map(moves.to_wire, planned))

    async def chain_events(self, request: pb.ChainEventsRequest) -> pb.ChainEventsReply:
        """The events of a chain in this term."""
        _, controller = self._require_primary()
        return pb.ChainEventsReply(events=controller.history.of(ChainId(request.chain_id)))

    async def hold_targets(self, request: pb.HoldTargetsRequest) -> pb.HoldTargetsReply:
        """Take targets out of service, or back into it. Raises NotFound, InvalidArgument."""
        store, controller = self._require_primary()
        found = await holds.hold_targets(store, self._publisher, self._failure_detector.report, request)
        controller.enqueue(ChainId(chain.chain_id) for chain in found)
        return pb.HoldTargetsReply(chains=found)

    async def add_nodes(self, request: pb.AddNodesRequest) -> pb.AddNodesReply:
        """Storage nodes join the plan. Raises InvalidArgument, AlreadyExists, Unavailable."""
        store, _ = self._require_primary()
        return pb.AddNodesReply(new_nodes=await membership.add_nodes(store, self._publisher, request))

    async def set_draining(self, request: pb.SetDrainingRequest) -> pb.SetDrainingReply:
        """The targets of a node move to others, or no longer do. Raises NotFound, InvalidArgument."""
        store, controller = self._require_primary()
        planned = await membership.set_draining(store, self._publisher, controller.move_executor, request)
        return pb.SetDrainingReply(moves=map(moves.to_wire, planned))

    async def remove_node(self, request: pb.RemoveNodeRequest) -> pb.RemoveNodeReply:
        """A node without targets leaves the plan. Raises NotFound, InvalidArgument."""
        store, controller = self._require_primary()
        await membership.remove_node(store, self._publisher, controller.move_executor, request)
        return pb.RemoveNodeReply()

    async def rebalance(self, request: pb.RebalanceRequest) -> pb.RebalanceReply:
        """Move targets until all disks carry equally many."""
        store, controller = self._require_primary()
        planned = await membership.rebalance(store, self._publisher, controller.move_executor, request)
        return pb.RebalanceReply(moves=map(moves.to_wire, planned))
