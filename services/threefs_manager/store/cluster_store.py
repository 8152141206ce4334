"""The manager's tables in its store: nodes, targets, chains, chain tables. Every change is a transaction of an epoch,
which raises the version of the routing as well."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import structlog
from google.protobuf.message import Message

from threefs import routing as routing_module
from threefs.cluster.manager_records import CHAIN, CLUSTER_KEY, MOVE, NODE, SEEN, TABLE, TARGET, record_key
from threefs.env.clock import Clock
from threefs.errors import Fenced, StrangeStore, ThreefsError
from threefs.ids import ChainId
from threefs.kv import records, restore_mark
from threefs.kv.engine_api import Engine, Transaction
from threefs.routing import Chain, Routing, Target
from threefs.wire import manager_pb2 as pb
from threefs_manager.election import Epoch

M = TypeVar("M", bound=Message)
T = TypeVar("T")
_LOAD_PAUSE_S = 0.2
_LOG = structlog.get_logger()


async def _read_all(tx: Transaction, prefix: bytes, kind: type[M]) -> list[M]:
    pairs = await tx.get_range(prefix + b"|", prefix + b"}")
    return [records.decode(value, kind, key) for key, value in pairs]


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

    def __init__(self, tx: Transaction, cluster: pb.ClusterRecord) -> None:
        self.cluster = cluster
        self._tx = tx
        self._changed = False

    async def nodes(self) -> list[pb.Node]:
        return await _read_all(self._tx, NODE, pb.Node)

    def put_node(self, node: pb.Node) -> None:
        self._changed = True
        self._tx.set(record_key(NODE, node.node_id), records.encode(node))

    def drop_node(self, node_id: int) -> None:
        self._changed = True
        self._tx.clear(record_key(NODE, node_id))

    async def routing(self) -> Routing:
        """The routing before the changes of this transaction."""
        return await read_routing(self._tx)

    async def moves(self) -> list[pb.Move]:
        return await _read_all(self._tx, MOVE, pb.Move)

    async def move(self, chain_id: int) -> pb.Move | None:
        key = record_key(MOVE, chain_id)
        value = await self._tx.get(key)
        return None if value is None else records.decode(value, pb.Move, key)

    def put_move(self, move: pb.Move) -> None:
        """A move is no part of the routing, but what it does to a chain is."""
        self._tx.set(record_key(MOVE, move.chain_id), records.encode(move))

    def drop_move(self, chain_id: int) -> None:
        self._tx.clear(record_key(MOVE, chain_id))

    def put_cluster(self) -> None:
        """Store `cluster` as the caller has changed it."""
        self._changed = True

    async def is_restored(self) -> bool:
        """Whether the store was loaded from a backup, and what it lacks is still unknown. Raises StrangeStore."""
        return await restore_mark.read_mark(self._tx) is not None

    def clear_restore_mark(self) -> None:
        restore_mark.settle(self._tx)

    async def chains(self) -> list[Chain]:
        return [routing_module.chain_from_wire(chain) for chain in await _read_all(self._tx, CHAIN, pb.Chain)]

    async def chain(self, chain_id: ChainId) -> Chain:
        key = record_key(CHAIN, chain_id)
        value = await self._tx.get(key)
        assert value is not None, f"chain {chain_id} has no record"
        return routing_module.chain_from_wire(records.decode(value, pb.Chain, key))

    async def chain_tables(self) -> list[pb.ChainTable]:
        return await _read_tables(self._tx, self.cluster)

    async def table(self, table_id: int) -> pb.ChainTable | None:
        return next((table for table in await self.chain_tables() if table.table_id == table_id), None)

    def put_table(self, table: pb.ChainTable) -> None:
        self._changed = True
        self._tx.set(record_key(TABLE, table.table_id), records.encode(table))

    def put_generation(self, seen: pb.SeenStore) -> None:
        """Record how far the store of a target is. It is no part of the routing."""
        self._tx.set(record_key(SEEN, seen.target_id), records.encode(seen))

    async def target(self, target_id: int) -> pb.Target | None:
        key = record_key(TARGET, target_id)
        value = await self._tx.get(key)
        return None if value is None else records.decode(value, pb.Target, key)

    def put_chains(self, chains: Iterable[Chain], targets: Iterable[Target] = ()) -> None:
        self._changed = True
        for chain in chains:
            assert chain.members and chain.version > 0, "a chain has targets, and its versions begin with 1"
            self._tx.set(record_key(CHAIN, chain.chain_id), records.encode(routing_module.chain_to_wire(chain)))
        for target in targets:
            self.put_target(routing_module.target_to_wire(target))

    def drop_target(self, target_id: int) -> None:
        self._changed = True
        self._tx.clear(record_key(TARGET, target_id))
        self._tx.clear(record_key(SEEN, target_id))

    def put_target(self, target: pb.Target) -> None:
        self._changed = True
        self._tx.set(record_key(TARGET, target.target_id), records.encode(target))

    def finish(self) -> None:
        """Raise the version of the routing if the transaction has changed it. Each new version wakes all long polls."""
        if not self._changed:
            return
        self.cluster.routing_version += 1
        self._tx.set(CLUSTER_KEY, records.encode(self.cluster))


class Store:
    """The manager's tables in its KV engine."""

    def __init__(self, engine: Engine, epoch: Epoch) -> None:
        self._engine = engine
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch.number

    async def load(self) -> Routing:
        return await read_routing(self._engine.begin())

    async def load_cluster(self) -> pb.ClusterRecord:
        return await read_cluster(self._engine.begin())

    async def load_moves(self) -> list[pb.Move]:
        return await _read_all(self._engine.begin(), MOVE, pb.Move)

    async def load_generations(self) -> list[pb.SeenStore]:
        return await _read_all(self._engine.begin(), SEEN, pb.SeenStore)

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
        return await self._epoch.run(function, replayable=True)

    async def change(self, function: Callable[[Writer], Awaitable[T]]) -> tuple[T, Routing]:
        """Run `function` in a transaction of this epoch; returns its result, and the routing after it.

        It may be run again after an attempt of unknown outcome, so it must recognise its own work as done.
        """

        async def write(tx: Transaction) -> tuple[T, Routing]:
            writer = Writer(tx, await read_cluster(tx))
            version = writer.cluster.routing_version
            result = await function(writer)
            writer.finish()
            assert writer.cluster.routing_version >= version, "the version of the routing only rises"
            return result, await read_routing(tx)

        return await self._epoch.run(write, replayable=True)


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
