from threefs.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublicState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PUBLIC_STATE_UNSPECIFIED: _ClassVar[PublicState]
    SERVING: _ClassVar[PublicState]
    SYNCING: _ClassVar[PublicState]
    WAITING: _ClassVar[PublicState]
    LASTSRV: _ClassVar[PublicState]
    OFFLINE: _ClassVar[PublicState]

class LocalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCAL_STATE_UNSPECIFIED: _ClassVar[LocalState]
    LOCAL_UPTODATE: _ClassVar[LocalState]
    LOCAL_ONLINE: _ClassVar[LocalState]
    LOCAL_OFFLINE: _ClassVar[LocalState]

class NodeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_KIND_UNSPECIFIED: _ClassVar[NodeKind]
    STORAGE: _ClassVar[NodeKind]
    META: _ClassVar[NodeKind]

class Hold(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_NONE: _ClassVar[Hold]
    HOLD_OFFLINE: _ClassVar[Hold]
    HOLD_FORCED: _ClassVar[Hold]
    HOLD_ROTATE: _ClassVar[Hold]

class KeyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEY_STATE_UNSPECIFIED: _ClassVar[KeyState]
    OWN_FILE: _ClassVar[KeyState]
    AWAITS_RESTART: _ClassVar[KeyState]
    REFUSED: _ClassVar[KeyState]
PUBLIC_STATE_UNSPECIFIED: PublicState
SERVING: PublicState
SYNCING: PublicState
WAITING: PublicState
LASTSRV: PublicState
OFFLINE: PublicState
LOCAL_STATE_UNSPECIFIED: LocalState
LOCAL_UPTODATE: LocalState
LOCAL_ONLINE: LocalState
LOCAL_OFFLINE: LocalState
NODE_KIND_UNSPECIFIED: NodeKind
STORAGE: NodeKind
META: NodeKind
HOLD_NONE: Hold
HOLD_OFFLINE: Hold
HOLD_FORCED: Hold
HOLD_ROTATE: Hold
KEY_STATE_UNSPECIFIED: KeyState
OWN_FILE: KeyState
AWAITS_RESTART: KeyState
REFUSED: KeyState

class Node(_message.Message):
    __slots__ = ("node_id", "kind", "domain", "address", "incarnation", "draining")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    kind: NodeKind
    domain: str
    address: str
    incarnation: int
    draining: bool
    def __init__(self, node_id: _Optional[int] = ..., kind: _Optional[_Union[NodeKind, str]] = ..., domain: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ..., draining: bool = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("target_id", "node_id", "chain_id", "store_id", "hold", "held_store_id")
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    HELD_STORE_ID_FIELD_NUMBER: _ClassVar[int]
    target_id: int
    node_id: int
    chain_id: int
    store_id: int
    hold: Hold
    held_store_id: int
    def __init__(self, target_id: _Optional[int] = ..., node_id: _Optional[int] = ..., chain_id: _Optional[int] = ..., store_id: _Optional[int] = ..., hold: _Optional[_Union[Hold, str]] = ..., held_store_id: _Optional[int] = ...) -> None: ...

class ChainMember(_message.Message):
    __slots__ = ("target_id", "state", "leaving")
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    target_id: int
    state: PublicState
    leaving: bool
    def __init__(self, target_id: _Optional[int] = ..., state: _Optional[_Union[PublicState, str]] = ..., leaving: bool = ...) -> None: ...

class Chain(_message.Message):
    __slots__ = ("chain_id", "version", "members")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    version: int
    members: _containers.RepeatedCompositeFieldContainer[ChainMember]
    def __init__(self, chain_id: _Optional[int] = ..., version: _Optional[int] = ..., members: _Optional[_Iterable[_Union[ChainMember, _Mapping]]] = ...) -> None: ...

class ChainTable(_message.Message):
    __slots__ = ("table_id", "chains", "min_replicas", "replicas", "created_by")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    CHAINS_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    chains: _containers.RepeatedScalarFieldContainer[int]
    min_replicas: int
    replicas: int
    created_by: bytes
    def __init__(self, table_id: _Optional[int] = ..., chains: _Optional[_Iterable[int]] = ..., min_replicas: _Optional[int] = ..., replicas: _Optional[int] = ..., created_by: _Optional[bytes] = ...) -> None: ...

class Routing(_message.Message):
    __slots__ = ("version", "cluster_id", "nodes", "targets", "chains", "tables", "lease_ms", "default_table")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    CHAINS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TABLE_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    chains: _containers.RepeatedCompositeFieldContainer[Chain]
    tables: _containers.RepeatedCompositeFieldContainer[ChainTable]
    lease_ms: int
    default_table: int
    def __init__(self, version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., chains: _Optional[_Iterable[_Union[Chain, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[ChainTable, _Mapping]]] = ..., lease_ms: _Optional[int] = ..., default_table: _Optional[int] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("chain_id", "added_target", "added_node", "removed_target")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    ADDED_TARGET_FIELD_NUMBER: _ClassVar[int]
    ADDED_NODE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TARGET_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    added_target: int
    added_node: int
    removed_target: int
    def __init__(self, chain_id: _Optional[int] = ..., added_target: _Optional[int] = ..., added_node: _Optional[int] = ..., removed_target: _Optional[int] = ...) -> None: ...

class MoveProgress(_message.Message):
    __slots__ = ("chain_id", "copied_bytes", "total_bytes", "bytes_per_s")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    COPIED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    copied_bytes: int
    total_bytes: int
    bytes_per_s: int
    def __init__(self, chain_id: _Optional[int] = ..., copied_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., bytes_per_s: _Optional[int] = ...) -> None: ...

class PlannedNode(_message.Message):
    __slots__ = ("node_id", "domain")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    domain: str
    def __init__(self, node_id: _Optional[int] = ..., domain: _Optional[str] = ...) -> None: ...

class InitRequest(_message.Message):
    __slots__ = ("storage", "replicas", "targets_per_disk", "lease_ms", "min_replicas")
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_PER_DISK_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    storage: _containers.RepeatedCompositeFieldContainer[PlannedNode]
    replicas: int
    targets_per_disk: int
    lease_ms: int
    min_replicas: int
    def __init__(self, storage: _Optional[_Iterable[_Union[PlannedNode, _Mapping]]] = ..., replicas: _Optional[int] = ..., targets_per_disk: _Optional[int] = ..., lease_ms: _Optional[int] = ..., min_replicas: _Optional[int] = ...) -> None: ...

class InitReply(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class Store(_message.Message):
    __slots__ = ("target_id", "store_id", "kept")
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    target_id: int
    store_id: int
    kept: KeptChain
    def __init__(self, target_id: _Optional[int] = ..., store_id: _Optional[int] = ..., kept: _Optional[_Union[KeptChain, _Mapping]] = ...) -> None: ...

class KeptChain(_message.Message):
    __slots__ = ("chain", "targets")
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    chain: Chain
    targets: _containers.RepeatedCompositeFieldContainer[Target]
    def __init__(self, chain: _Optional[_Union[Chain, _Mapping]] = ..., targets: _Optional[_Iterable[_Union[Target, _Mapping]]] = ...) -> None: ...

class KeptRouting(_message.Message):
    __slots__ = ("node_id", "routing", "unnamed", "highest_target")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TARGET_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    routing: Routing
    unnamed: _containers.RepeatedCompositeFieldContainer[Target]
    highest_target: int
    def __init__(self, node_id: _Optional[int] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ..., unnamed: _Optional[_Iterable[_Union[Target, _Mapping]]] = ..., highest_target: _Optional[int] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("node_id", "kind", "address", "incarnation", "cluster_id", "domain", "stores", "routing_version", "release", "unnamed_stores", "highest_target")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_STORES_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TARGET_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    kind: NodeKind
    address: str
    incarnation: int
    cluster_id: str
    domain: str
    stores: _containers.RepeatedCompositeFieldContainer[Store]
    routing_version: int
    release: str
    unnamed_stores: _containers.RepeatedCompositeFieldContainer[Store]
    highest_target: int
    def __init__(self, node_id: _Optional[int] = ..., kind: _Optional[_Union[NodeKind, str]] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ..., cluster_id: _Optional[str] = ..., domain: _Optional[str] = ..., stores: _Optional[_Iterable[_Union[Store, _Mapping]]] = ..., routing_version: _Optional[int] = ..., release: _Optional[str] = ..., unnamed_stores: _Optional[_Iterable[_Union[Store, _Mapping]]] = ..., highest_target: _Optional[int] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("node_id", "cluster_id", "routing")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    cluster_id: str
    routing: Routing
    def __init__(self, node_id: _Optional[int] = ..., cluster_id: _Optional[str] = ..., routing: _Optional[_Union[Routing, _Mapping]] = ...) -> None: ...

class TargetReport(_message.Message):
    __slots__ = ("target_id", "local_state", "chain_version", "capacity_bytes", "used_bytes", "chunks", "free_bytes", "disk", "store_id", "synced_chunks", "chunks_to_sync", "scrubbed_chunks", "damaged_chunks", "repaired_chunks", "read_only", "failure", "unrepaired_chunks", "scrubbed_bytes", "scrub_passes", "sync_progress", "generation", "lost_chunks", "unscrubbed_ms", "scrub_interval_ms", "reusable_bytes", "scrubbing", "pass_chunks", "replaces_damaged", "lease_lapsed")
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STATE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SYNCED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_TO_SYNC_FIELD_NUMBER: _ClassVar[int]
    SCRUBBED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    UNREPAIRED_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    SCRUBBED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCRUB_PASSES_FIELD_NUMBER: _ClassVar[int]
    SYNC_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOST_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    UNSCRUBBED_MS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    REUSABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SCRUBBING_FIELD_NUMBER: _ClassVar[int]
    PASS_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    REPLACES_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    LEASE_LAPSED_FIELD_NUMBER: _ClassVar[int]
    target_id: int
    local_state: LocalState
    chain_version: int
    capacity_bytes: int
    used_bytes: int
    chunks: int
    free_bytes: int
    disk: str
    store_id: int
    synced_chunks: int
    chunks_to_sync: int
    scrubbed_chunks: int
    damaged_chunks: int
    repaired_chunks: int
    read_only: bool
    failure: str
    unrepaired_chunks: int
    scrubbed_bytes: int
    scrub_passes: int
    sync_progress: int
    generation: int
    lost_chunks: int
    unscrubbed_ms: int
    scrub_interval_ms: int
    reusable_bytes: int
    scrubbing: bool
    pass_chunks: int
    replaces_damaged: bool
    lease_lapsed: bool
    def __init__(self, target_id: _Optional[int] = ..., local_state: _Optional[_Union[LocalState, str]] = ..., chain_version: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., chunks: _Optional[int] = ..., free_bytes: _Optional[int] = ..., disk: _Optional[str] = ..., store_id: _Optional[int] = ..., synced_chunks: _Optional[int] = ..., chunks_to_sync: _Optional[int] = ..., scrubbed_chunks: _Optional[int] = ..., damaged_chunks: _Optional[int] = ..., repaired_chunks: _Optional[int] = ..., read_only: bool = ..., failure: _Optional[str] = ..., unrepaired_chunks: _Optional[int] = ..., scrubbed_bytes: _Optional[int] = ..., scrub_passes: _Optional[int] = ..., sync_progress: _Optional[int] = ..., generation: _Optional[int] = ..., lost_chunks: _Optional[int] = ..., unscrubbed_ms: _Optional[int] = ..., scrub_interval_ms: _Optional[int] = ..., reusable_bytes: _Optional[int] = ..., scrubbing: bool = ..., pass_chunks: _Optional[int] = ..., replaces_damaged: bool = ..., lease_lapsed: bool = ...) -> None: ...

class UnreachablePeer(_message.Message):
    __slots__ = ("node_id", "unreachable_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    unreachable_ms: int
    def __init__(self, node_id: _Optional[int] = ..., unreachable_ms: _Optional[int] = ...) -> None: ...

class StrayStores(_message.Message):
    __slots__ = ("targets", "bytes")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[int]
    bytes: int
    def __init__(self, targets: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("node_id", "incarnation", "targets", "leaving", "routing_version", "unreachable", "release", "clock_ms", "configuration", "stray_stores")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    STRAY_STORES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: int
    targets: _containers.RepeatedCompositeFieldContainer[TargetReport]
    leaving: bool
    routing_version: int
    unreachable: _containers.RepeatedCompositeFieldContainer[UnreachablePeer]
    release: str
    clock_ms: int
    configuration: ConfigurationReport
    stray_stores: StrayStores
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[TargetReport, _Mapping]]] = ..., leaving: bool = ..., routing_version: _Optional[int] = ..., unreachable: _Optional[_Iterable[_Union[UnreachablePeer, _Mapping]]] = ..., release: _Optional[str] = ..., clock_ms: _Optional[int] = ..., configuration: _Optional[_Union[ConfigurationReport, _Mapping]] = ..., stray_stores: _Optional[_Union[StrayStores, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("routing_version", "leased")
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    routing_version: int
    leased: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, routing_version: _Optional[int] = ..., leased: _Optional[_Iterable[int]] = ...) -> None: ...

class PresenceRequest(_message.Message):
    __slots__ = ("node_id", "incarnation")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: int
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class PresenceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AdmitStoreRequest(_message.Message):
    __slots__ = ("cluster_id", "store_id", "epoch", "generation", "restored", "sole_address", "next_inode", "durable_change", "address", "restore_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    SOLE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NEXT_INODE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    store_id: str
    epoch: int
    generation: int
    restored: bool
    sole_address: str
    next_inode: int
    durable_change: int
    address: str
    restore_id: str
    def __init__(self, cluster_id: _Optional[str] = ..., store_id: _Optional[str] = ..., epoch: _Optional[int] = ..., generation: _Optional[int] = ..., restored: bool = ..., sole_address: _Optional[str] = ..., next_inode: _Optional[int] = ..., durable_change: _Optional[int] = ..., address: _Optional[str] = ..., restore_id: _Optional[str] = ...) -> None: ...

class AdmitStoreReply(_message.Message):
    __slots__ = ("epoch", "first_number")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_number: int
    def __init__(self, epoch: _Optional[int] = ..., first_number: _Optional[int] = ...) -> None: ...

class GetRoutingRequest(_message.Message):
    __slots__ = ("known_version", "wait_ms", "known_configuration", "known_term", "client")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TERM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    wait_ms: int
    known_configuration: int
    known_term: int
    client: ClientReport
    def __init__(self, known_version: _Optional[int] = ..., wait_ms: _Optional[int] = ..., known_configuration: _Optional[int] = ..., known_term: _Optional[int] = ..., client: _Optional[_Union[ClientReport, _Mapping]] = ...) -> None: ...

class ClientReport(_message.Message):
    __slots__ = ("client_id", "name", "configuration")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    name: str
    configuration: ConfigurationReport
    def __init__(self, client_id: _Optional[bytes] = ..., name: _Optional[str] = ..., configuration: _Optional[_Union[ConfigurationReport, _Mapping]] = ...) -> None: ...

class GetRoutingReply(_message.Message):
    __slots__ = ("routing", "configuration", "changes", "term")
    ROUTING_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    routing: Routing
    configuration: Configuration
    changes: RoutingChanges
    term: int
    def __init__(self, routing: _Optional[_Union[Routing, _Mapping]] = ..., configuration: _Optional[_Union[Configuration, _Mapping]] = ..., changes: _Optional[_Union[RoutingChanges, _Mapping]] = ..., term: _Optional[int] = ...) -> None: ...

class RoutingChanges(_message.Message):
    __slots__ = ("base_version", "changed", "gone_nodes", "gone_targets", "gone_chains", "gone_tables")
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    GONE_NODES_FIELD_NUMBER: _ClassVar[int]
    GONE_TARGETS_FIELD_NUMBER: _ClassVar[int]
    GONE_CHAINS_FIELD_NUMBER: _ClassVar[int]
    GONE_TABLES_FIELD_NUMBER: _ClassVar[int]
    base_version: int
    changed: Routing
    gone_nodes: _containers.RepeatedScalarFieldContainer[int]
    gone_targets: _containers.RepeatedScalarFieldContainer[int]
    gone_chains: _containers.RepeatedScalarFieldContainer[int]
    gone_tables: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base_version: _Optional[int] = ..., changed: _Optional[_Union[Routing, _Mapping]] = ..., gone_nodes: _Optional[_Iterable[int]] = ..., gone_targets: _Optional[_Iterable[int]] = ..., gone_chains: _Optional[_Iterable[int]] = ..., gone_tables: _Optional[_Iterable[int]] = ...) -> None: ...

class AcceptLossRequest(_message.Message):
    __slots__ = ("chain_id", "chain_version", "target_id", "dry_run")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    chain_version: int
    target_id: int
    dry_run: bool
    def __init__(self, chain_id: _Optional[int] = ..., chain_version: _Optional[int] = ..., target_id: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class AcceptLossReply(_message.Message):
    __slots__ = ("chain",)
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    chain: Chain
    def __init__(self, chain: _Optional[_Union[Chain, _Mapping]] = ...) -> None: ...

class AcceptUnheardRequest(_message.Message):
    __slots__ = ("nodes", "dry_run")
    NODES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[int]
    dry_run: bool
    def __init__(self, nodes: _Optional[_Iterable[int]] = ..., dry_run: bool = ...) -> None: ...

class AcceptUnheardReply(_message.Message):
    __slots__ = ("awaited_nodes",)
    AWAITED_NODES_FIELD_NUMBER: _ClassVar[int]
    awaited_nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, awaited_nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class SetMinReplicasRequest(_message.Message):
    __slots__ = ("table_id", "min_replicas")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    min_replicas: int
    def __init__(self, table_id: _Optional[int] = ..., min_replicas: _Optional[int] = ...) -> None: ...

class SetMinReplicasReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AddNodesRequest(_message.Message):
    __slots__ = ("storage", "dry_run")
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    storage: _containers.RepeatedCompositeFieldContainer[PlannedNode]
    dry_run: bool
    def __init__(self, storage: _Optional[_Iterable[_Union[PlannedNode, _Mapping]]] = ..., dry_run: bool = ...) -> None: ...

class AddNodesReply(_message.Message):
    __slots__ = ("new_nodes",)
    NEW_NODES_FIELD_NUMBER: _ClassVar[int]
    new_nodes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, new_nodes: _Optional[_Iterable[int]] = ...) -> None: ...

class SetDrainingRequest(_message.Message):
    __slots__ = ("node_id", "draining", "dry_run")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    draining: bool
    dry_run: bool
    def __init__(self, node_id: _Optional[int] = ..., draining: bool = ..., dry_run: bool = ...) -> None: ...

class SetDrainingReply(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class RemoveNodeRequest(_message.Message):
    __slots__ = ("node_id", "dry_run")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    dry_run: bool
    def __init__(self, node_id: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class RemoveNodeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: bool = ...) -> None: ...

class RebalanceReply(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("replicas", "targets_per_disk", "min_replicas", "call_id", "dry_run")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_PER_DISK_FIELD_NUMBER: _ClassVar[int]
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    replicas: int
    targets_per_disk: int
    min_replicas: int
    call_id: bytes
    dry_run: bool
    def __init__(self, replicas: _Optional[int] = ..., targets_per_disk: _Optional[int] = ..., min_replicas: _Optional[int] = ..., call_id: _Optional[bytes] = ..., dry_run: bool = ...) -> None: ...

class CreateTableReply(_message.Message):
    __slots__ = ("table", "targets")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    table: ChainTable
    targets: int
    def __init__(self, table: _Optional[_Union[ChainTable, _Mapping]] = ..., targets: _Optional[int] = ...) -> None: ...

class SetDefaultTableRequest(_message.Message):
    __slots__ = ("table_id", "dry_run")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    dry_run: bool
    def __init__(self, table_id: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class SetDefaultTableReply(_message.Message):
    __slots__ = ("table_before",)
    TABLE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    table_before: int
    def __init__(self, table_before: _Optional[int] = ...) -> None: ...

class SetReplicasRequest(_message.Message):
    __slots__ = ("table_id", "replicas", "dry_run")
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    replicas: int
    dry_run: bool
    def __init__(self, table_id: _Optional[int] = ..., replicas: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class SetReplicasReply(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ...) -> None: ...

class HoldTargetsRequest(_message.Message):
    __slots__ = ("targets", "hold", "dry_run")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[int]
    hold: Hold
    dry_run: bool
    def __init__(self, targets: _Optional[_Iterable[int]] = ..., hold: _Optional[_Union[Hold, str]] = ..., dry_run: bool = ...) -> None: ...

class ChainEventsRequest(_message.Message):
    __slots__ = ("chain_id",)
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    def __init__(self, chain_id: _Optional[int] = ...) -> None: ...

class ChainEvent(_message.Message):
    __slots__ = ("chain", "ago_ms")
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    AGO_MS_FIELD_NUMBER: _ClassVar[int]
    chain: Chain
    ago_ms: int
    def __init__(self, chain: _Optional[_Union[Chain, _Mapping]] = ..., ago_ms: _Optional[int] = ...) -> None: ...

class ChainEventsReply(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ChainEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[ChainEvent, _Mapping]]] = ...) -> None: ...

class HeldChain(_message.Message):
    __slots__ = ("chain_id", "serving", "needed", "members")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    NEEDED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    chain_id: int
    serving: int
    needed: int
    members: int
    def __init__(self, chain_id: _Optional[int] = ..., serving: _Optional[int] = ..., needed: _Optional[int] = ..., members: _Optional[int] = ...) -> None: ...

class HoldTargetsReply(_message.Message):
    __slots__ = ("chains",)
    CHAINS_FIELD_NUMBER: _ClassVar[int]
    chains: _containers.RepeatedCompositeFieldContainer[HeldChain]
    def __init__(self, chains: _Optional[_Iterable[_Union[HeldChain, _Mapping]]] = ...) -> None: ...

class BackedUpStore(_message.Message):
    __slots__ = ("store", "behind_ms", "complete", "failure")
    STORE_FIELD_NUMBER: _ClassVar[int]
    BEHIND_MS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    store: str
    behind_ms: int
    complete: bool
    failure: str
    def __init__(self, store: _Optional[str] = ..., behind_ms: _Optional[int] = ..., complete: bool = ..., failure: _Optional[str] = ...) -> None: ...

class ReportBackupRequest(_message.Message):
    __slots__ = ("name", "stores", "report_interval_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    stores: _containers.RepeatedCompositeFieldContainer[BackedUpStore]
    report_interval_ms: int
    def __init__(self, name: _Optional[str] = ..., stores: _Optional[_Iterable[_Union[BackedUpStore, _Mapping]]] = ..., report_interval_ms: _Optional[int] = ...) -> None: ...

class ReportBackupReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackupStatus(_message.Message):
    __slots__ = ("name", "stores", "report_interval_ms", "silent_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    REPORT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    stores: _containers.RepeatedCompositeFieldContainer[BackedUpStore]
    report_interval_ms: int
    silent_ms: int
    def __init__(self, name: _Optional[str] = ..., stores: _Optional[_Iterable[_Union[BackedUpStore, _Mapping]]] = ..., report_interval_ms: _Optional[int] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class RefusedStore(_message.Message):
    __slots__ = ("address", "reason", "ago_ms")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGO_MS_FIELD_NUMBER: _ClassVar[int]
    address: str
    reason: str
    ago_ms: int
    def __init__(self, address: _Optional[str] = ..., reason: _Optional[str] = ..., ago_ms: _Optional[int] = ...) -> None: ...

class ConfigurationValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Configuration(_message.Message):
    __slots__ = ("version", "made_ns", "values")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MADE_NS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    version: int
    made_ns: int
    values: _containers.RepeatedCompositeFieldContainer[ConfigurationValue]
    def __init__(self, version: _Optional[int] = ..., made_ns: _Optional[int] = ..., values: _Optional[_Iterable[_Union[ConfigurationValue, _Mapping]]] = ...) -> None: ...

class ConfigurationVersion(_message.Message):
    __slots__ = ("configuration", "who", "message", "rollback_version", "call_id")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_VERSION_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    who: str
    message: str
    rollback_version: int
    call_id: bytes
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ..., who: _Optional[str] = ..., message: _Optional[str] = ..., rollback_version: _Optional[int] = ..., call_id: _Optional[bytes] = ...) -> None: ...

class KeyReport(_message.Message):
    __slots__ = ("name", "value", "state", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    state: KeyState
    reason: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., state: _Optional[_Union[KeyState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ConfigurationReport(_message.Message):
    __slots__ = ("version", "made_ns", "keys")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MADE_NS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    version: int
    made_ns: int
    keys: _containers.RepeatedCompositeFieldContainer[KeyReport]
    def __init__(self, version: _Optional[int] = ..., made_ns: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[KeyReport, _Mapping]]] = ...) -> None: ...

class GetConfigurationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConfigurationReply(_message.Message):
    __slots__ = ("configuration", "versions")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    versions: _containers.RepeatedCompositeFieldContainer[ConfigurationVersion]
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ..., versions: _Optional[_Iterable[_Union[ConfigurationVersion, _Mapping]]] = ...) -> None: ...

class ConfigurationChange(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class SetConfigurationRequest(_message.Message):
    __slots__ = ("known_version", "changes", "rollback_version", "who", "message", "call_id", "dry_run")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_VERSION_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    changes: _containers.RepeatedCompositeFieldContainer[ConfigurationChange]
    rollback_version: int
    who: str
    message: str
    call_id: bytes
    dry_run: bool
    def __init__(self, known_version: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[ConfigurationChange, _Mapping]]] = ..., rollback_version: _Optional[int] = ..., who: _Optional[str] = ..., message: _Optional[str] = ..., call_id: _Optional[bytes] = ..., dry_run: bool = ...) -> None: ...

class SetConfigurationReply(_message.Message):
    __slots__ = ("before", "configuration")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    before: Configuration
    configuration: Configuration
    def __init__(self, before: _Optional[_Union[Configuration, _Mapping]] = ..., configuration: _Optional[_Union[Configuration, _Mapping]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("clients",)
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    clients: bool
    def __init__(self, clients: bool = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("node", "alive", "silent_ms", "targets", "heard", "ended", "unreachable", "release", "clock_ppm", "configuration", "stray_stores")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_PPM_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    STRAY_STORES_FIELD_NUMBER: _ClassVar[int]
    node: Node
    alive: bool
    silent_ms: int
    targets: _containers.RepeatedCompositeFieldContainer[TargetReport]
    heard: bool
    ended: bool
    unreachable: _containers.RepeatedCompositeFieldContainer[UnreachablePeer]
    release: str
    clock_ppm: int
    configuration: ConfigurationReport
    stray_stores: StrayStores
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., alive: bool = ..., silent_ms: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[TargetReport, _Mapping]]] = ..., heard: bool = ..., ended: bool = ..., unreachable: _Optional[_Iterable[_Union[UnreachablePeer, _Mapping]]] = ..., release: _Optional[str] = ..., clock_ppm: _Optional[int] = ..., configuration: _Optional[_Union[ConfigurationReport, _Mapping]] = ..., stray_stores: _Optional[_Union[StrayStores, _Mapping]] = ...) -> None: ...

class GetStatusReply(_message.Message):
    __slots__ = ("routing_version", "cluster_id", "manager_epoch", "nodes", "chains", "lease_ms", "tables", "awaited_nodes", "failure", "moves", "manager_release", "default_table", "backups", "refused_stores", "configuration", "configuration_age_ms", "manager_configuration", "link_removals", "move_progress", "more_moves", "rebalance_awaits", "clients", "more_clients", "store_disk")
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MANAGER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CHAINS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    AWAITED_NODES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MANAGER_RELEASE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TABLE_FIELD_NUMBER: _ClassVar[int]
    BACKUPS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_STORES_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MANAGER_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    LINK_REMOVALS_FIELD_NUMBER: _ClassVar[int]
    MOVE_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MORE_MOVES_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_AWAITS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    STORE_DISK_FIELD_NUMBER: _ClassVar[int]
    routing_version: int
    cluster_id: str
    manager_epoch: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    chains: _containers.RepeatedCompositeFieldContainer[Chain]
    lease_ms: int
    tables: _containers.RepeatedCompositeFieldContainer[ChainTable]
    awaited_nodes: _containers.RepeatedScalarFieldContainer[int]
    failure: str
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    manager_release: str
    default_table: int
    backups: _containers.RepeatedCompositeFieldContainer[BackupStatus]
    refused_stores: _containers.RepeatedCompositeFieldContainer[RefusedStore]
    configuration: Configuration
    configuration_age_ms: int
    manager_configuration: ConfigurationReport
    link_removals: int
    move_progress: _containers.RepeatedCompositeFieldContainer[MoveProgress]
    more_moves: bool
    rebalance_awaits: _containers.RepeatedScalarFieldContainer[int]
    clients: _containers.RepeatedCompositeFieldContainer[ClientReport]
    more_clients: bool
    store_disk: _common_pb2.StoreDisk
    def __init__(self, routing_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., manager_epoch: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., chains: _Optional[_Iterable[_Union[Chain, _Mapping]]] = ..., lease_ms: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[ChainTable, _Mapping]]] = ..., awaited_nodes: _Optional[_Iterable[int]] = ..., failure: _Optional[str] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., manager_release: _Optional[str] = ..., default_table: _Optional[int] = ..., backups: _Optional[_Iterable[_Union[BackupStatus, _Mapping]]] = ..., refused_stores: _Optional[_Iterable[_Union[RefusedStore, _Mapping]]] = ..., configuration: _Optional[_Union[Configuration, _Mapping]] = ..., configuration_age_ms: _Optional[int] = ..., manager_configuration: _Optional[_Union[ConfigurationReport, _Mapping]] = ..., link_removals: _Optional[int] = ..., move_progress: _Optional[_Iterable[_Union[MoveProgress, _Mapping]]] = ..., more_moves: bool = ..., rebalance_awaits: _Optional[_Iterable[int]] = ..., clients: _Optional[_Iterable[_Union[ClientReport, _Mapping]]] = ..., more_clients: bool = ..., store_disk: _Optional[_Union[_common_pb2.StoreDisk, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("holder", "epoch", "seq", "old_length_ms", "length_ms")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    OLD_LENGTH_MS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_MS_FIELD_NUMBER: _ClassVar[int]
    holder: str
    epoch: int
    seq: int
    old_length_ms: int
    length_ms: int
    def __init__(self, holder: _Optional[str] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., old_length_ms: _Optional[int] = ..., length_ms: _Optional[int] = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("holder", "epoch")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    holder: str
    epoch: int
    def __init__(self, holder: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ClusterRecord(_message.Message):
    __slots__ = ("cluster_id", "routing_version", "plan_digest", "next_meta_node", "replicas", "targets_per_disk", "lease_ms", "next_target", "balancing", "default_table")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_META_NODE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_PER_DISK_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TARGET_FIELD_NUMBER: _ClassVar[int]
    BALANCING_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TABLE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    routing_version: int
    plan_digest: bytes
    next_meta_node: int
    replicas: int
    targets_per_disk: int
    lease_ms: int
    next_target: int
    balancing: bool
    default_table: int
    def __init__(self, cluster_id: _Optional[str] = ..., routing_version: _Optional[int] = ..., plan_digest: _Optional[bytes] = ..., next_meta_node: _Optional[int] = ..., replicas: _Optional[int] = ..., targets_per_disk: _Optional[int] = ..., lease_ms: _Optional[int] = ..., next_target: _Optional[int] = ..., balancing: bool = ..., default_table: _Optional[int] = ...) -> None: ...

class SeenStore(_message.Message):
    __slots__ = ("target_id", "store_id", "generation")
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    target_id: int
    store_id: int
    generation: int
    def __init__(self, target_id: _Optional[int] = ..., store_id: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class MetadataStore(_message.Message):
    __slots__ = ("store_id", "epoch", "generation", "next_inode", "durable_change", "forgotten", "next_epoch", "first_number", "restore_id", "given_epoch", "given_restore_id")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_INODE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_CHANGE_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    GIVEN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GIVEN_RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    epoch: int
    generation: int
    next_inode: int
    durable_change: int
    forgotten: bool
    next_epoch: int
    first_number: int
    restore_id: str
    given_epoch: int
    given_restore_id: str
    def __init__(self, store_id: _Optional[str] = ..., epoch: _Optional[int] = ..., generation: _Optional[int] = ..., next_inode: _Optional[int] = ..., durable_change: _Optional[int] = ..., forgotten: bool = ..., next_epoch: _Optional[int] = ..., first_number: _Optional[int] = ..., restore_id: _Optional[str] = ..., given_epoch: _Optional[int] = ..., given_restore_id: _Optional[str] = ...) -> None: ...
