"""The routing snapshot: which targets form which chain, in which state, at which address. Immutable."""

import enum
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from threefs.errors import ProtocolError
from threefs.ids import ChainId, NodeId, TableId, TargetId
from threefs.wire import manager_pb2 as pb


class PublicState(enum.IntEnum):
    """The state of a target in its chain, as the manager decides it. Values are those of the wire."""

    SERVING = pb.SERVING
    SYNCING = pb.SYNCING
    WAITING = pb.WAITING
    LASTSRV = pb.LASTSRV
    OFFLINE = pb.OFFLINE


class LocalState(enum.IntEnum):
    """The state that a storage process reports for its own target."""

    UPTODATE = pb.LOCAL_UPTODATE
    ONLINE = pb.LOCAL_ONLINE
    OFFLINE = pb.LOCAL_OFFLINE


class NodeKind(enum.IntEnum):
    STORAGE = pb.STORAGE
    META = pb.META


class Hold(enum.IntEnum):
    """An administrator's hold on a target: none, out of service, or a rotation."""

    NONE = pb.HOLD_NONE
    OFFLINE = pb.HOLD_OFFLINE  # out of service, as long as the chain takes writes without it
    FORCED = pb.HOLD_FORCED  # out of service, whatever that means for its chain
    ROTATE = pb.HOLD_ROTATE  # it is the head, and returns behind the others


FIRST_TABLE = TableId(1)


@dataclass(frozen=True, slots=True)
class Node:
    node_id: NodeId
    kind: NodeKind
    domain: str
    address: str  # "host:port"; empty until it has registered
    incarnation: int
    draining: bool = False  # it gets no more targets, and loses those it has


@dataclass(frozen=True, slots=True)
class Target:
    """One that is not a member of its chain was taken out of it for good: its node deletes what it keeps."""

    target_id: TargetId
    node_id: NodeId
    chain_id: ChainId
    store_id: int = 0  # of what it keeps; 0 until it has registered
    hold: Hold = Hold.NONE
    held_store_id: int = 0  # of what it kept when the hold began


@dataclass(frozen=True, slots=True)
class ChainMember:
    target_id: TargetId
    state: PublicState
    leaving: bool = False  # it is being taken out of the chain for good


@dataclass(frozen=True, slots=True)
class Chain:
    """Members in chain order: serving ones first, head to tail, then at most one syncing, then the rest."""

    chain_id: ChainId
    version: int
    members: tuple[ChainMember, ...]

    @property
    def serving(self) -> tuple[TargetId, ...]:
        return tuple(m.target_id for m in self.members if m.state is PublicState.SERVING)

    @property
    def head(self) -> TargetId | None:
        """The serving target that takes the clients' writes."""
        return next(iter(self.serving), None)

    @property
    def tail(self) -> TargetId | None:
        """The last serving target: it tells what chunks there are."""
        return self.serving[-1] if self.serving else None

    @property
    def last(self) -> TargetId | None:
        """The last that writes reach, serving or syncing: what it has not committed nobody has shown (rule R1)."""
        return self._reached[-1].target_id if self.serving else None

    @property
    def staying(self) -> tuple[TargetId, ...]:
        """The serving targets that are not leaving."""
        return tuple(m.target_id for m in self.members if m.state is PublicState.SERVING and not m.leaving)

    @property
    def leaving(self) -> TargetId | None:
        """The member that is being taken out of the chain for good."""
        return next((m.target_id for m in self.members if m.leaving), None)

    @property
    def _reached(self) -> list[ChainMember]:
        return [m for m in self.members if m.state in (PublicState.SERVING, PublicState.SYNCING)]

    def state(self, target: TargetId) -> PublicState | None:
        return next((m.state for m in self.members if m.target_id == target), None)

    def successor(self, target: TargetId) -> ChainMember | None:
        """The next member that writes reach: serving or syncing."""
        for member, following in itertools.pairwise(self._reached):
            if member.target_id == target:
                return following
        return None

    def hops_after(self, target: TargetId) -> int:
        """How many more members writes reach after this one."""
        reached = [member.target_id for member in self._reached]
        return len(reached) - 1 - reached.index(target) if target in reached else 0


@dataclass(frozen=True)  # without slots, for what is computed once
class Routing:
    version: int
    cluster_id: str
    nodes: Mapping[NodeId, Node]
    targets: Mapping[TargetId, Target]
    chains: Mapping[ChainId, Chain]
    tables: Mapping[TableId, tuple[ChainId, ...]]
    lease_ms: int = 0
    min_replicas: Mapping[TableId, int] = field(default_factory=dict)  # that must serve, for writes to a table's chains
    default_table: TableId = FIRST_TABLE  # that new files take unless their directory names another one
    replicas: Mapping[TableId, int] = field(default_factory=dict)  # that each chain of a table has, or is being given

    @property
    def lease_s(self) -> float:
        """T: a target that was silent for so long is dead. Its lease has ended after half of that."""
        return self.lease_ms / 1000

    @cached_property
    def unserved(self) -> frozenset[ChainId]:
        """The chains without a serving target."""
        return frozenset(chain.chain_id for chain in self.chains.values() if chain.tail is None)

    def node_of(self, target: TargetId) -> Node:
        return self.nodes[self.targets[target].node_id]

    def address_of(self, target: TargetId) -> str:
        """The "host:port" of the process that holds the target; empty while that is unknown."""
        return self.node_of(target).address

    def is_removed(self, target: Target) -> bool:
        """Whether the target was taken out of its chain for good."""
        return self.chains[target.chain_id].state(target.target_id) is None

    def hold(self, target: TargetId) -> Hold:
        known = self.targets.get(target)
        return Hold.NONE if known is None else known.hold

    def is_out_of_service(self, target_id: TargetId) -> bool:
        """Whether an administrator wants this member of a chain out of service, also if it serves still."""
        target = self.targets.get(target_id)
        return target is not None and target.hold in (Hold.OFFLINE, Hold.FORCED) and not self.is_removed(target)

    def yields(self, target: TargetId, chain: Chain, minimum: int) -> bool:
        """Whether a target that an administrator holds leaves the write path of the chain now: the targets that serve
        and that nobody wants to leave are as many as a write needs. The chain may be newer than this routing."""
        hold, state = self.hold(target), chain.state(target)
        if hold is Hold.NONE or state not in (PublicState.SERVING, PublicState.SYNCING):
            return False
        if hold is Hold.ROTATE and chain.head != target:
            return False
        if hold is Hold.FORCED or state is PublicState.SYNCING:
            return True
        return sum(self.hold(other) is Hold.NONE for other in chain.staying) >= max(1, minimum)

    def shown_target(self, target: TargetId) -> str:
        """As errors name it: with its node, which `threefs status` lists."""
        known = self.targets.get(target)
        return f"target {target}" if known is None else f"target {target} of node {known.node_id}"

    def shown_chain(self, chain: ChainId) -> str:
        """As errors name it: with the nodes that hold its copies."""
        known = self.chains.get(chain)
        found = [] if known is None else [self.targets.get(member.target_id) for member in known.members]
        nodes = [str(target.node_id) for target in found if target is not None]
        return f"chain {chain} on nodes {', '.join(nodes)}" if nodes else f"chain {chain}"

    def shortage(self, chain: ChainId) -> str:
        """That the chain takes no writes of clients because too few of its targets serve, in words. Empty: it may."""
        known, needed = self.chains.get(chain), self.minimum(chain)
        if known is None or len(known.serving) >= needed:
            return ""
        copies = f"{len(known.serving)} of {len(known.members)} copies, and at least {needed} are needed for a write"
        return (
            f"{self.shown_chain(chain)} has {copies}: start what has stopped, remove files or add disks where disks "
            "are full (`threefs status`)"
        )

    def minimum(self, chain: ChainId) -> int:
        """How many targets of the chain must serve, for it to take writes of clients."""
        tables = [table for table, chains in self.tables.items() if chain in chains]
        return max((self.min_replicas.get(table, 1) for table in tables), default=1)

    def minimums(self) -> dict[ChainId, int]:
        """The minimum of each chain; of one that is not there 1."""
        found: dict[ChainId, int] = {}
        for table, minimum in self.min_replicas.items():
            for chain in self.tables.get(table, ()):
                found[chain] = max(found.get(chain, 1), minimum)
        return found

    def meta_addresses(self) -> tuple[str, ...]:
        return tuple(n.address for n in self.nodes.values() if n.kind is NodeKind.META and n.address)


EMPTY = Routing(0, "", {}, {}, {}, {})


def from_wire(message: pb.Routing) -> Routing:
    """Raises ProtocolError for kinds and states of a peer that are not known here."""
    try:
        return _from_wire(message)
    except ValueError as error:
        raise ProtocolError(f"routing that cannot be understood: {error}") from None


def _from_wire(message: pb.Routing) -> Routing:
    return Routing(
        version=message.version,
        cluster_id=message.cluster_id,
        nodes={NodeId(n.node_id): node_from_wire(n) for n in message.nodes},
        targets={TargetId(t.target_id): target_from_wire(t) for t in message.targets},
        chains={ChainId(c.chain_id): chain_from_wire(c) for c in message.chains},
        tables={TableId(t.table_id): tuple(ChainId(c) for c in t.chains) for t in message.tables},
        lease_ms=message.lease_ms,
        min_replicas={TableId(t.table_id): t.min_replicas for t in message.tables if t.min_replicas},
        default_table=TableId(message.default_table or FIRST_TABLE),
        replicas={TableId(t.table_id): t.replicas for t in message.tables if t.replicas},
    )


def to_wire(routing: Routing) -> pb.Routing:
    return pb.Routing(
        version=routing.version,
        cluster_id=routing.cluster_id,
        nodes=[node_to_wire(node) for node in routing.nodes.values()],
        targets=[target_to_wire(target) for target in routing.targets.values()],
        chains=[chain_to_wire(c) for c in routing.chains.values()],
        tables=[
            pb.ChainTable(
                table_id=table,
                chains=chains,
                min_replicas=routing.min_replicas.get(table, 0),
                replicas=routing.replicas.get(table, 0),
            )
            for table, chains in routing.tables.items()
        ],
        lease_ms=routing.lease_ms,
        default_table=routing.default_table,
    )


def node_from_wire(message: pb.Node) -> Node:
    return Node(
        NodeId(message.node_id),
        NodeKind(message.kind),
        message.domain,
        message.address,
        message.incarnation,
        message.draining,
    )


def node_to_wire(node: Node) -> pb.Node:
    return pb.Node(
        node_id=node.node_id,
        kind=node.kind.value,
        domain=node.domain,
        address=node.address,
        incarnation=node.incarnation,
        draining=node.draining,
    )


def target_from_wire(message: pb.Target) -> Target:
    return Target(
        TargetId(message.target_id),
        NodeId(message.node_id),
        ChainId(message.chain_id),
        message.store_id,
        Hold(message.hold),
        message.held_store_id,
    )


def target_to_wire(target: Target) -> pb.Target:
    return pb.Target(
        target_id=target.target_id,
        node_id=target.node_id,
        chain_id=target.chain_id,
        store_id=target.store_id,
        hold=target.hold.value,
        held_store_id=target.held_store_id,
    )


def chain_from_wire(message: pb.Chain) -> Chain:
    members = tuple(ChainMember(TargetId(m.target_id), PublicState(m.state), m.leaving) for m in message.members)
    return Chain(ChainId(message.chain_id), message.version, members)


def chain_to_wire(chain: Chain) -> pb.Chain:
    members = [pb.ChainMember(target_id=m.target_id, state=m.state.value, leaving=m.leaving) for m in chain.members]
    return pb.Chain(chain_id=chain.chain_id, version=chain.version, members=members)
