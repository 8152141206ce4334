"""The manager's tables in its store: nodes, targets, chains, chain tables. Every change is a transaction of an epoch,
which raises the version of the routing as well."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog
from google.protobuf.message import Message

from threefs import routing as routing_module
from threefs.cluster.manager_records import (
    CHAIN,
    CLUSTER_KEY,
    METADATA_KEY,
    MOVE,
    NODE,
    SEEN,
    TABLE,
    TARGET,
    record_key,
    record_number,
)
from threefs.env.clock import Clock
from threefs.errors import Conflict, Corrupt, Fenced, StrangeStore, ThreefsError
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.kv import records, restore_mark
from threefs.kv.engine_api import Engine, Transaction
from threefs.routing import FIRST_TABLE, Chain, Node, Routing, Target
from threefs.routing_changes import RoutingChanges
from threefs.telemetry.damaged_records import DamagedRecords
from threefs.wire import manager_pb2 as pb
from threefs_manager.election import Epoch

M = TypeVar("M", bound=Message)
T = TypeVar("T")
_LOAD_PAUSE_S = 0.2
_LOST_MOVE = "a move cannot be read, and is planned anew"
_LOG = structlog.get_logger()


async def _read_all(tx: Transaction, prefix: bytes, kind: type[M]) -> list[M]:
    pairs = await tx.get_range(prefix + b"|", prefix + b"}")
    return [records.decode(value, kind, key) for key, value in pairs]


async def _read_moves(tx: Transaction, damaged: DamagedRecords) -> list[pb.Move]:
    """Without those whose record is damaged: the chain says how far such a move was, and the next plan goes on from
    there."""
    found = []
    for key, value in await tx.get_range(MOVE + b"|", MOVE + b"}"):
        try:
            found.append(records.decode(value, pb.Move, key))
        except Corrupt as error:
            damaged.pass_over(key, error, _LOST_MOVE)
    return found


async def read_cluster(tx: Transaction) -> pb.ClusterRecord:
    """The record of the cluster; its fields are empty before `init`."""
    value = await tx.get(CLUSTER_KEY)
    return pb.ClusterRecord() if value is None else records.decode(value, pb.ClusterRecord, CLUSTER_KEY)


async def read_routing(tx: Transaction) -> Routing:
    cluster = await read_cluster(tx)
    message = pb.Routing(
        version=cluster.routing_version,
        cluster_id=cluster.cluster_id,
        nodes=await _read_all(tx, NODE, pb.Node),
        targets=await _read_all(tx, TARGET, pb.Target),
        chains=await _read_all(tx, CHAIN, pb.Chain),
        tables=await _read_tables(tx, cluster),
        lease_ms=cluster.lease_ms,
        default_table=cluster.default_table,
    )
    return routing_module.from_wire(message)


async def _read_tables(tx: Transaction, cluster: pb.ClusterRecord) -> list[pb.ChainTable]:
    tables = await _read_all(tx, TABLE, pb.ChainTable)
    for table in tables:
        table.replicas = table.replicas or cluster.replicas
    return tables


class Writer:
    """The tables within one transaction, and what it changes in them."""

    def __init__(self, tx: Transaction, cluster: pb.ClusterRecord, routing: Routing, damaged: DamagedRecords) -> None:
        self.cluster = cluster
        self._damaged = damaged
        self.routing = routing  # before the changes of this transaction
        self._tx = tx
        self._is_changed = False
        # None: dropped
        self._nodes: dict[NodeId, Node | None] = {}
        self._targets: dict[TargetId, Target | None] = {}
        self._chains: dict[ChainId, Chain] = {}
        self._tables: dict[TableId, pb.ChainTable] = {}

    def put_node(self, node: Node) -> None:
        self._is_changed = True
        self._nodes[node.node_id] = node
        self._tx.set(record_key(NODE, node.node_id), records.encode(routing_module.node_to_wire(node)))

    def drop_node(self, node_id: NodeId) -> None:
        self._is_changed = True
        self._nodes[node_id] = None
        self._tx.clear(record_key(NODE, node_id))

    async def moves(self) -> list[pb.Move]:
        return await _read_moves(self._tx, self._damaged)

    async def move(self, chain_id: int) -> pb.Move | None:
        key = record_key(MOVE, chain_id)
        value = await self._tx.get(key)
        try:
            return None if value is None else records.decode(value, pb.Move, key)
        except Corrupt as error:
            self._damaged.pass_over(key, error, _LOST_MOVE)
            return None

    def put_move(self, move: pb.Move) -> None:
        """A move is no part of the routing, but what it does to a chain is."""
        self._tx.set(record_key(MOVE, move.chain_id), records.encode(move))

    def drop_move(self, chain_id: int) -> None:
        self._tx.clear(record_key(MOVE, chain_id))

    def put_cluster(self) -> None:
        """Store `cluster` as the caller has changed it."""
        self._is_changed = True

    async def is_restored(self) -> bool:
        """Whether the store was loaded from a backup, and what it lacks is still unknown. Raises StrangeStore."""
        return await restore_mark.read_mark(self._tx) is not None

    def clear_restore_mark(self) -> None:
        restore_mark.settle(self._tx)

    async def chain_tables(self) -> list[pb.ChainTable]:
        """Their records, which say more than the routing does."""
        return await _read_tables(self._tx, self.cluster)

    async def table(self, table_id: int) -> pb.ChainTable | None:
        return next((table for table in await self.chain_tables() if table.table_id == table_id), None)

    def put_table(self, table: pb.ChainTable) -> None:
        self._is_changed = True
        kept = self._tables[TableId(table.table_id)] = pb.ChainTable()
        kept.CopyFrom(table)
        self._tx.set(record_key(TABLE, table.table_id), records.encode(table))

    def put_generation(self, seen: pb.SeenStore) -> None:
        """Record how far the store of a target is. It is no part of the routing."""
        self._tx.set(record_key(SEEN, seen.target_id), records.encode(seen))

    async def metadata(self) -> pb.MetadataStore:
        """What is known of the metadata store. It is no part of the routing."""
        value = await self._tx.get(METADATA_KEY)
        return pb.MetadataStore() if value is None else records.decode(value, pb.MetadataStore, METADATA_KEY)

    def put_metadata(self, known: pb.MetadataStore) -> None:
        self._tx.set(METADATA_KEY, records.encode(known))

    def put_chains(self, chains: Iterable[Chain], targets: Iterable[Target] = ()) -> None:
        self._is_changed = True
        for chain in chains:
            assert chain.members and chain.version > 0, "a chain has targets, and its versions begin with 1"
            self._chains[chain.chain_id] = chain
            self._tx.set(record_key(CHAIN, chain.chain_id), records.encode(routing_module.chain_to_wire(chain)))
        for target in targets:
            self.put_target(target)

    def drop_target(self, target_id: TargetId) -> None:
        self._is_changed = True
        self._targets[target_id] = None
        self._tx.clear(record_key(TARGET, target_id))
        self._tx.clear(record_key(SEEN, target_id))

    def put_target(self, target: Target) -> None:
        self._is_changed = True
        self._targets[target.target_id] = target
        self._tx.set(record_key(TARGET, target.target_id), records.encode(routing_module.target_to_wire(target)))

    def finish(self) -> Routing:
        """The routing after the transaction. Its version rises if the transaction has changed it: each new version
        wakes all long polls."""
        if not self._is_changed:
            return self.routing
        self.cluster.routing_version += 1
        assert self.cluster.routing_version > self.routing.version, "the version of the routing only rises"
        self._tx.set(CLUSTER_KEY, records.encode(self.cluster))
        return self._changes().applied_to(self.routing)

    def _changes(self) -> RoutingChanges:
        tables = self._tables
        changed = Routing(
            version=self.cluster.routing_version,
            cluster_id=self.cluster.cluster_id,
            nodes={node_id: node for node_id, node in self._nodes.items() if node is not None},
            targets={target_id: target for target_id, target in self._targets.items() if target is not None},
            chains=self._chains,
            tables={table_id: tuple(map(ChainId, table.chains)) for table_id, table in tables.items()},
            lease_ms=self.cluster.lease_ms,
            min_replicas={table_id: table.min_replicas for table_id, table in tables.items() if table.min_replicas},
            default_table=TableId(self.cluster.default_table or FIRST_TABLE),
            replicas={
                table_id: replicas
                for table_id, table in tables.items()
                if (replicas := table.replicas or self.cluster.replicas)
            },
        )
        return RoutingChanges(
            self.routing.version,
            changed,
            gone_nodes=frozenset(node_id for node_id, node in self._nodes.items() if node is None),
            gone_targets=frozenset(target_id for target_id, target in self._targets.items() if target is None),
        )


class Store:
    """The manager's tables in its KV engine.

    It keeps the routing that it has read or stored last, so that a change reads the record of the cluster and not tens
    of thousands of others. That is safe because in one epoch only this object changes the routing, and each change
    writes the record with the next version: a version stands for one content, and two changes that began with the same
    one conflict.
    """

    def __init__(self, engine: Engine, epoch: Epoch) -> None:
        self._engine = engine
        self._epoch = epoch
        self._known: Routing | None = None
        self._damaged = DamagedRecords()
        #: A transaction has failed that may have been made, or may be made yet. Whoever tells others what the store has
        #: tells less than that, until it has read the store again (`ChainController`).
        self.may_be_ahead = False

    @property
    def epoch(self) -> int:
        return self._epoch.number

    async def load(self) -> Routing:
        return await read_routing(self._engine.begin())

    async def load_cluster(self) -> pb.ClusterRecord:
        return await read_cluster(self._engine.begin())

    async def load_moves(self) -> list[pb.Move]:
        return await _read_moves(self._engine.begin(), self._damaged)

    async def load_generations(self) -> tuple[list[pb.SeenStore], list[TargetId]]:
        """And the targets whose record is damaged."""
        found, damaged = [], []
        for key, value in await self._engine.begin().get_range(SEEN + b"|", SEEN + b"}"):
            try:
                found.append(records.decode(value, pb.SeenStore, key))
            except Corrupt as error:
                damaged.append(TargetId(record_number(key)))
                self._damaged.pass_over(key, error, "how far the store of a target was cannot be read")
        return found, damaged

    async def save_generations(self, seen: Sequence[pb.SeenStore]) -> None:
        async def write(tx: Transaction) -> None:
            for one in seen:
                tx.set(record_key(SEEN, one.target_id), records.encode(one))

        await self._epoch.run(write, replayable=True)

    async def read(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        """The result of a transaction that only reads."""
        return await function(self._engine.begin())

    async def run(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `function` in a transaction of this epoch that does not change the routing. It may be run again."""
        return await self._run(function)

    async def change(self, function: Callable[[Writer], Awaitable[T]]) -> tuple[T, Routing]:
        """Run `function` in a transaction of this epoch; returns its result, and the routing after it.

        It may be run again after an attempt of unknown outcome, so it must recognise its own work as done.
        """

        async def write(tx: Transaction) -> tuple[T, Routing]:
            cluster = await read_cluster(tx)  # counts as a read, so any other change conflicts with this one
            routing = await self._routing_at(cluster.routing_version, tx)
            writer = Writer(tx, cluster, routing, self._damaged)
            return await function(writer), writer.finish()

        result, routing = await self._run(write)
        if self._known is None or routing.version > self._known.version:
            self._known = routing
        return result, routing

    async def _run(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        is_tried = False  # to commit: before that, an error says that nothing was changed

        async def attempt(tx: Transaction) -> T:
            nonlocal is_tried
            result = await function(tx)
            is_tried = True
            return result

        try:
            return await self._epoch.run(attempt, replayable=True)
        except BaseException:
            self.may_be_ahead = self.may_be_ahead or is_tried
            raise

    async def _routing_at(self, version: int, tx: Transaction) -> Routing:
        """The routing that the transaction sees. Raises Conflict for one that another change has replaced already."""
        if self._known is None or version > self._known.version:  # of an attempt of unknown outcome, for example
            return await read_routing(tx)
        if version < self._known.version:
            raise Conflict(f"the routing has version {self._known.version}, and the store shows version {version}")
        return self._known


async def retry_forever(load: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Read at the beginning of a term, when nothing can be served before it has worked: try until it does. Raises
    Fenced and StrangeStore, which waiting does not heal."""
    while True:
        try:
            return await load()
        except (Fenced, StrangeStore):
            raise
        except ThreefsError as error:
            _LOG.warning("the store cannot be read now", error=str(error))
            await clock.sleep(_LOAD_PAUSE_S)
