"""What has changed between two snapshots of the routing, as a manager sends it instead of the whole. Pure.

A snapshot of thousands of disks has megabytes, of which a change of a chain is some bytes. Versions of the routing say
what it is only within one term of a manager: after a restore a version may come again with another content. So changes
are sent only to a caller that has its snapshot from the same term.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from threefs import routing as routing_module
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.routing import Routing
from threefs.wire import manager_pb2 as pb

K = TypeVar("K", bound=int)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RoutingChanges:
    """From the snapshot of `base_version` to the one of `changed.version`."""

    base_version: int
    #: The later snapshot, with only those nodes, targets, chains and tables that are new or different.
    changed: Routing
    gone_nodes: frozenset[NodeId] = frozenset()
    gone_targets: frozenset[TargetId] = frozenset()
    gone_chains: frozenset[ChainId] = frozenset()
    gone_tables: frozenset[TableId] = frozenset()

    @property
    def entries(self) -> int:
        """Of the message."""
        gone = (self.gone_nodes, self.gone_targets, self.gone_chains, self.gone_tables)
        return entries_of(self.changed) + sum(map(len, gone))

    def then(self, later: "RoutingChanges") -> "RoutingChanges":
        """Both in one: `later` starts from the snapshot that this leads to."""
        assert later.base_version == self.changed.version, "changes follow each other without a gap"
        return RoutingChanges(
            self.base_version,
            later.applied_to(self.changed),
            self.gone_nodes - later.changed.nodes.keys() | later.gone_nodes,
            self.gone_targets - later.changed.targets.keys() | later.gone_targets,
            self.gone_chains - later.changed.chains.keys() | later.gone_chains,
            self.gone_tables - later.changed.tables.keys() | later.gone_tables,
        )

    def applied_to(self, routing: Routing) -> Routing:
        """The later snapshot, from the earlier one."""
        changed = self.changed
        tables = changed.tables.keys() | self.gone_tables
        return dataclasses.replace(
            changed,
            nodes=_updated(routing.nodes, changed.nodes, self.gone_nodes),
            targets=_updated(routing.targets, changed.targets, self.gone_targets),
            chains=_updated(routing.chains, changed.chains, self.gone_chains),
            tables=_updated(routing.tables, changed.tables, self.gone_tables),
            min_replicas=_updated(routing.min_replicas, changed.min_replicas, tables - changed.min_replicas.keys()),
            replicas=_updated(routing.replicas, changed.replicas, tables - changed.replicas.keys()),
        )


def entries_of(routing: Routing) -> int:
    return len(routing.nodes) + len(routing.targets) + len(routing.chains) + len(routing.tables)


def between(old: Routing, new: Routing) -> RoutingChanges:
    tables = {
        table: chains
        for table, chains in new.tables.items()
        if old.tables.get(table) != chains
        or old.min_replicas.get(table) != new.min_replicas.get(table)
        or old.replicas.get(table) != new.replicas.get(table)
    }
    changed = dataclasses.replace(
        new,
        nodes=_different(old.nodes, new.nodes),
        targets=_different(old.targets, new.targets),
        chains=_different(old.chains, new.chains),
        tables=tables,
        min_replicas={table: least for table, least in new.min_replicas.items() if table in tables},
        replicas={table: count for table, count in new.replicas.items() if table in tables},
    )
    return RoutingChanges(
        old.version,
        changed,
        _gone(old.nodes, new.nodes),
        _gone(old.targets, new.targets),
        _gone(old.chains, new.chains),
        _gone(old.tables, new.tables),
    )


def to_wire(changes: RoutingChanges) -> pb.RoutingChanges:
    return pb.RoutingChanges(
        base_version=changes.base_version,
        changed=routing_module.to_wire(changes.changed),
        gone_nodes=sorted(changes.gone_nodes),
        gone_targets=sorted(changes.gone_targets),
        gone_chains=sorted(changes.gone_chains),
        gone_tables=sorted(changes.gone_tables),
    )


def from_wire(message: pb.RoutingChanges) -> RoutingChanges:
    """Raises ProtocolError for kinds and states that are not known here."""
    return RoutingChanges(
        message.base_version,
        routing_module.from_wire(message.changed),
        frozenset(map(NodeId, message.gone_nodes)),
        frozenset(map(TargetId, message.gone_targets)),
        frozenset(map(ChainId, message.gone_chains)),
        frozenset(map(TableId, message.gone_tables)),
    )


def _different(old: Mapping[K, V], new: Mapping[K, V]) -> dict[K, V]:
    """Snapshots of a term share what is the same in both."""
    if old is new:
        return {}
    return {key: value for key, value in new.items() if (before := old.get(key)) is not value and before != value}


def _gone(old: Mapping[K, V], new: Mapping[K, V]) -> frozenset[K]:
    return frozenset() if old is new else frozenset(old.keys() - new.keys())


def _updated(old: Mapping[K, V], changed: Mapping[K, V], gone: frozenset[K] | set[K]) -> Mapping[K, V]:
    """In the order of the ids, as a manager reads them from its store; the same object if nothing is different."""
    if not changed and not gone:
        return old
    found = {**old, **changed}
    if len(found) > len(old):
        found = {key: found[key] for key in sorted(found)}
    for key in gone:
        found.pop(key, None)
    return found
