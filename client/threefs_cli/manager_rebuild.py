"""A new store of the manager from the copies of the routing that storage services keep, and what it lacks.

The new store is like one from a backup of the moment of the newest copy: the manager serves nothing before every
storage node has reported the newest version of its chains, so no chain goes on with outdated bytes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from threefs.cluster.manager_records import (
    CHAIN,
    CLUSTER_KEY,
    FIRST_ADDED_TARGET,
    FIRST_META_NODE,
    METADATA_KEY,
    NODE,
    SKIPPED_IDS,
    TABLE,
    TARGET,
    record_key,
)
from threefs.errors import InvalidArgument, NotFound
from threefs.kv import records
from threefs.wire import manager_pb2 as pb


@dataclass(frozen=True, slots=True)
class Copy:
    file: Path
    node_id: int
    routing: pb.Routing
    highest_target: int  # that its node was ever told of


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    newest: Copy
    highest_target: int  # of all copies: the store of one that the newest does not know may lie on a disk still
    read_nodes: tuple[int, ...]
    unread_nodes: tuple[int, ...]  # storage nodes of the newest copy whose own copy is not among those read
    unsettled_chains: tuple[int, ...]  # with more or fewer members than their table says

    @property
    def routing(self) -> pb.Routing:
        return self.newest.routing

    def losses(self) -> list[str]:
        """The gaps of the new store, a sentence each."""
        lost = []
        if self.unread_nodes:
            lost.append(
                f"the copies of node {_listed(self.unread_nodes)} were not read: tables, targets and nodes that only "
                "they know are lost, and their services do not start with a target that the new store does not know"
            )
        if self.unsettled_chains:
            lost.append(
                f"chain {_listed(self.unsettled_chains)} gained or lost a copy at that time, which does not go on by "
                "itself: afterwards see `threefs node ls`, `threefs rebalance` and `threefs table set-replicas`"
            )
        lost.append("the values that `threefs config` has set, with their history: set them again")
        lost.append(
            "which copies of the disks and of the metadata are the newest: an older copy that is put in place now is "
            "not recognised, so start every service with the disk that it had"
        )
        lost.append("the plan that `threefs init` was given: it is refused if it is given again")
        return lost

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The records of the new store."""
        yield CLUSTER_KEY, records.encode(_cluster(self.routing, self.highest_target))
        yield METADATA_KEY, records.encode(pb.MetadataStore(forgotten=True))
        rows: list[tuple[bytes, int, Message]] = []
        for node in self.routing.nodes:
            known = pb.Node()
            known.CopyFrom(node)
            known.incarnation = 0  # every service registers as at its first start
            if node.kind == pb.STORAGE:
                known.address = ""
            rows.append((NODE, node.node_id, known))
        rows += [(TARGET, target.target_id, target) for target in self.routing.targets]
        rows += [(CHAIN, chain.chain_id, chain) for chain in self.routing.chains]
        rows += [(TABLE, table.table_id, table) for table in self.routing.tables]
        for prefix, number, record in rows:
            yield record_key(prefix, number), records.encode(record)


def plan(copies: Sequence[Copy]) -> RebuildPlan:
    """Raises NotFound without a copy, InvalidArgument for copies of several clusters, and for one of no use."""
    if not copies:
        raise NotFound("no copy of the routing was found; name the data_dir of each storage service")
    clusters = {copy.routing.cluster_id: copy for copy in copies}
    if len(clusters) > 1:
        shown = "; ".join(f"{copy.file} of cluster {cluster}" for cluster, copy in sorted(clusters.items()))
        raise InvalidArgument(f"the copies belong to several clusters: {shown}; name those of one")
    # A restored manager may have given an older routing a higher version; but no table is ever removed.
    newest = max(copies, key=lambda copy: (len(copy.routing.tables), copy.routing.version))
    if not newest.routing.tables:
        raise InvalidArgument(f"{newest.file} is no copy of a cluster in use: it has no chain table")
    read = {copy.node_id for copy in copies}
    storage = {node.node_id for node in newest.routing.nodes if node.kind == pb.STORAGE}
    return RebuildPlan(
        newest,
        highest_target=max(copy.highest_target for copy in copies),
        read_nodes=tuple(sorted(read)),
        unread_nodes=tuple(sorted(storage - read)),
        unsettled_chains=_unsettled(newest.routing),
    )


def _unsettled(routing: pb.Routing) -> tuple[int, ...]:
    members = {chain.chain_id: chain.members for chain in routing.chains}
    return tuple(
        sorted(
            chain
            for table in routing.tables
            for chain in table.chains
            if any(member.leaving for member in members[chain])
            or (table.replicas and len(members[chain]) != table.replicas)
        )
    )


def _cluster(routing: pb.Routing, highest_target: int) -> pb.ClusterRecord:
    metas = [node.node_id for node in routing.nodes if node.kind == pb.META]
    per_node = Counter(target.node_id for target in routing.targets if target.target_id < FIRST_ADDED_TARGET)
    return pb.ClusterRecord(
        cluster_id=routing.cluster_id,
        routing_version=routing.version,
        next_meta_node=max(metas, default=FIRST_META_NODE) + SKIPPED_IDS,
        replicas=routing.tables[0].replicas,
        targets_per_disk=max(per_node.values(), default=1),
        lease_ms=routing.lease_ms,
        next_target=max(FIRST_ADDED_TARGET, highest_target) + SKIPPED_IDS,
        default_table=routing.default_table,
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
