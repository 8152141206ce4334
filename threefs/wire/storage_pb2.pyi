from threefs.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WriteKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WRITE_KIND_UNSPECIFIED: _ClassVar[WriteKind]
    WRITE: _ClassVar[WriteKind]
    TRUNCATE: _ClassVar[WriteKind]
    EXTEND: _ClassVar[WriteKind]
    REMOVE: _ClassVar[WriteKind]
    REPLACE: _ClassVar[WriteKind]
    FORGET: _ClassVar[WriteKind]
    COLLECT: _ClassVar[WriteKind]
    WRITE_PIECES: _ClassVar[WriteKind]
WRITE_KIND_UNSPECIFIED: WriteKind
WRITE: WriteKind
TRUNCATE: WriteKind
EXTEND: WriteKind
REMOVE: WriteKind
REPLACE: WriteKind
FORGET: WriteKind
COLLECT: WriteKind
WRITE_PIECES: WriteKind

class ReadRequest(_message.Message):
    __slots__ = ("target", "chain_version", "inode", "index", "offset", "length")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    target: _containers.RepeatedScalarFieldContainer[int]
    chain_version: _containers.RepeatedScalarFieldContainer[int]
    inode: _containers.RepeatedScalarFieldContainer[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, target: _Optional[_Iterable[int]] = ..., chain_version: _Optional[_Iterable[int]] = ..., inode: _Optional[_Iterable[int]] = ..., index: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("code", "length", "checksum", "version", "routing_version")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    code: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    checksum: _containers.RepeatedScalarFieldContainer[int]
    version: _containers.RepeatedScalarFieldContainer[int]
    routing_version: int
    def __init__(self, code: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ..., checksum: _Optional[_Iterable[int]] = ..., version: _Optional[_Iterable[int]] = ..., routing_version: _Optional[int] = ...) -> None: ...

class ChunkWrite(_message.Message):
    __slots__ = ("target", "chain_version", "chunk", "identity", "kind", "offset", "length", "checksum", "chunk_bytes", "version", "removed", "entries", "again", "only_version", "lost", "stamp", "known_version", "first_seq", "fresh", "base_version", "whole_length", "whole_checksum", "forgotten_version", "forgotten_stamp", "fence", "trace", "pieces", "freed")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    ONLY_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    WHOLE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_VERSION_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_STAMP_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    chunk: _common_pb2.ChunkId
    identity: _common_pb2.WriteIdentity
    kind: WriteKind
    offset: int
    length: int
    checksum: int
    chunk_bytes: int
    version: int
    removed: bool
    entries: _containers.RepeatedCompositeFieldContainer[OnceEntry]
    again: bool
    only_version: int
    lost: bool
    stamp: int
    known_version: int
    first_seq: int
    fresh: bool
    base_version: int
    whole_length: int
    whole_checksum: int
    forgotten_version: int
    forgotten_stamp: int
    fence: int
    trace: bytes
    pieces: _containers.RepeatedScalarFieldContainer[int]
    freed: bool
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., chunk: _Optional[_Union[_common_pb2.ChunkId, _Mapping]] = ..., identity: _Optional[_Union[_common_pb2.WriteIdentity, _Mapping]] = ..., kind: _Optional[_Union[WriteKind, str]] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., version: _Optional[int] = ..., removed: bool = ..., entries: _Optional[_Iterable[_Union[OnceEntry, _Mapping]]] = ..., again: bool = ..., only_version: _Optional[int] = ..., lost: bool = ..., stamp: _Optional[int] = ..., known_version: _Optional[int] = ..., first_seq: _Optional[int] = ..., fresh: bool = ..., base_version: _Optional[int] = ..., whole_length: _Optional[int] = ..., whole_checksum: _Optional[int] = ..., forgotten_version: _Optional[int] = ..., forgotten_stamp: _Optional[int] = ..., fence: _Optional[int] = ..., trace: _Optional[bytes] = ..., pieces: _Optional[_Iterable[int]] = ..., freed: bool = ...) -> None: ...

class OnceEntry(_message.Message):
    __slots__ = ("identity", "version", "length", "checksum", "stamp")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    identity: _common_pb2.WriteIdentity
    version: int
    length: int
    checksum: int
    stamp: int
    def __init__(self, identity: _Optional[_Union[_common_pb2.WriteIdentity, _Mapping]] = ..., version: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ..., stamp: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("writes", "answer_after_ms")
    WRITES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[ChunkWrite]
    answer_after_ms: int
    def __init__(self, writes: _Optional[_Iterable[_Union[ChunkWrite, _Mapping]]] = ..., answer_after_ms: _Optional[int] = ...) -> None: ...

class ChunkWriteResult(_message.Message):
    __slots__ = ("code", "message", "version", "length", "checksum")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    version: int
    length: int
    checksum: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., version: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class WriteReply(_message.Message):
    __slots__ = ("results", "routing_version")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ChunkWriteResult]
    routing_version: int
    def __init__(self, results: _Optional[_Iterable[_Union[ChunkWriteResult, _Mapping]]] = ..., routing_version: _Optional[int] = ...) -> None: ...

class StageAheadRequest(_message.Message):
    __slots__ = ("writes",)
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[ChunkWrite]
    def __init__(self, writes: _Optional[_Iterable[_Union[ChunkWrite, _Mapping]]] = ...) -> None: ...

class StageAheadReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ChunkWriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ChunkWriteResult, _Mapping]]] = ...) -> None: ...

class ForwardStagedRequest(_message.Message):
    __slots__ = ("target", "chain_version", "chunk", "identity", "version", "length", "checksum", "removed", "stamp", "trace")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    chunk: _common_pb2.ChunkId
    identity: _common_pb2.WriteIdentity
    version: int
    length: int
    checksum: int
    removed: bool
    stamp: int
    trace: bytes
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., chunk: _Optional[_Union[_common_pb2.ChunkId, _Mapping]] = ..., identity: _Optional[_Union[_common_pb2.WriteIdentity, _Mapping]] = ..., version: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ..., removed: bool = ..., stamp: _Optional[int] = ..., trace: _Optional[bytes] = ...) -> None: ...

class ForwardVersionsRequest(_message.Message):
    __slots__ = ("versions", "answer_after_ms")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[ForwardStagedRequest]
    answer_after_ms: int
    def __init__(self, versions: _Optional[_Iterable[_Union[ForwardStagedRequest, _Mapping]]] = ..., answer_after_ms: _Optional[int] = ...) -> None: ...

class ForwardVersionsReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ChunkWriteResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ChunkWriteResult, _Mapping]]] = ...) -> None: ...

class QueryVersionRequest(_message.Message):
    __slots__ = ("target", "chain_version", "inode", "index")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    inode: _containers.RepeatedScalarFieldContainer[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., inode: _Optional[_Iterable[int]] = ..., index: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryVersionReply(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[_Iterable[int]] = ...) -> None: ...

class LastChunkRequest(_message.Message):
    __slots__ = ("target", "chain_version", "inode")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    inode: int
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., inode: _Optional[int] = ...) -> None: ...

class LastChunkReply(_message.Message):
    __slots__ = ("found", "index", "length")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    found: bool
    index: int
    length: int
    def __init__(self, found: bool = ..., index: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ListChunksRequest(_message.Message):
    __slots__ = ("target", "chain_version", "inode", "first_index", "limit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    inode: int
    first_index: int
    limit: int
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., inode: _Optional[int] = ..., first_index: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListChunksReply(_message.Message):
    __slots__ = ("index", "length", "more", "version", "checksum")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    version: _containers.RepeatedScalarFieldContainer[int]
    checksum: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, index: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ..., more: bool = ..., version: _Optional[_Iterable[int]] = ..., checksum: _Optional[_Iterable[int]] = ...) -> None: ...

class InventoryRequest(_message.Message):
    __slots__ = ("target", "chain_version", "behind", "inode", "index", "limit")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    behind: bool
    inode: int
    index: int
    limit: int
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., behind: bool = ..., inode: _Optional[int] = ..., index: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class InventoryReply(_message.Message):
    __slots__ = ("inode", "index", "version", "checksum", "digest", "more")
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    inode: _containers.RepeatedScalarFieldContainer[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    version: _containers.RepeatedScalarFieldContainer[int]
    checksum: _containers.RepeatedScalarFieldContainer[int]
    digest: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    def __init__(self, inode: _Optional[_Iterable[int]] = ..., index: _Optional[_Iterable[int]] = ..., version: _Optional[_Iterable[int]] = ..., checksum: _Optional[_Iterable[int]] = ..., digest: _Optional[_Iterable[int]] = ..., more: bool = ...) -> None: ...

class SyncDoneRequest(_message.Message):
    __slots__ = ("target", "chain_version", "stamp")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    stamp: int
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., stamp: _Optional[int] = ...) -> None: ...

class SyncDoneReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchChunkRequest(_message.Message):
    __slots__ = ("target", "chain_version", "inode", "index", "newest", "version", "length", "checksum", "record_only", "any_state")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    RECORD_ONLY_FIELD_NUMBER: _ClassVar[int]
    ANY_STATE_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    inode: int
    index: int
    newest: bool
    version: int
    length: int
    checksum: int
    record_only: bool
    any_state: bool
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., inode: _Optional[int] = ..., index: _Optional[int] = ..., newest: bool = ..., version: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ..., record_only: bool = ..., any_state: bool = ...) -> None: ...

class FetchChunkReply(_message.Message):
    __slots__ = ("found", "chunk")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    found: bool
    chunk: ChunkWrite
    def __init__(self, found: bool = ..., chunk: _Optional[_Union[ChunkWrite, _Mapping]] = ...) -> None: ...

class ScanChunksRequest(_message.Message):
    __slots__ = ("target", "chain_version", "behind", "inode", "index", "limit", "removed", "any_state")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    ANY_STATE_FIELD_NUMBER: _ClassVar[int]
    target: int
    chain_version: int
    behind: bool
    inode: int
    index: int
    limit: int
    removed: bool
    any_state: bool
    def __init__(self, target: _Optional[int] = ..., chain_version: _Optional[int] = ..., behind: bool = ..., inode: _Optional[int] = ..., index: _Optional[int] = ..., limit: _Optional[int] = ..., removed: bool = ..., any_state: bool = ...) -> None: ...

class ScanChunksReply(_message.Message):
    __slots__ = ("inode", "index", "version", "length", "checksum", "pending", "more", "last_inode", "last_index", "health")
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LAST_INODE_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    inode: _containers.RepeatedScalarFieldContainer[int]
    index: _containers.RepeatedScalarFieldContainer[int]
    version: _containers.RepeatedScalarFieldContainer[int]
    length: _containers.RepeatedScalarFieldContainer[int]
    checksum: _containers.RepeatedScalarFieldContainer[int]
    pending: _containers.RepeatedScalarFieldContainer[bool]
    more: bool
    last_inode: int
    last_index: int
    health: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, inode: _Optional[_Iterable[int]] = ..., index: _Optional[_Iterable[int]] = ..., version: _Optional[_Iterable[int]] = ..., length: _Optional[_Iterable[int]] = ..., checksum: _Optional[_Iterable[int]] = ..., pending: _Optional[_Iterable[bool]] = ..., more: bool = ..., last_inode: _Optional[int] = ..., last_index: _Optional[int] = ..., health: _Optional[_Iterable[int]] = ...) -> None: ...

class InspectChunkRequest(_message.Message):
    __slots__ = ("target", "inode", "index")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    target: int
    inode: int
    index: int
    def __init__(self, target: _Optional[int] = ..., inode: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class ChunkVersion(_message.Message):
    __slots__ = ("version", "chain_version", "length", "checksum", "removed", "lost")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    version: int
    chain_version: int
    length: int
    checksum: int
    removed: bool
    lost: bool
    def __init__(self, version: _Optional[int] = ..., chain_version: _Optional[int] = ..., length: _Optional[int] = ..., checksum: _Optional[int] = ..., removed: bool = ..., lost: bool = ...) -> None: ...

class ChunkEvent(_message.Message):
    __slots__ = ("what", "ago_ms", "version", "chain_version", "to_target")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    AGO_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_TARGET_FIELD_NUMBER: _ClassVar[int]
    what: str
    ago_ms: int
    version: int
    chain_version: int
    to_target: int
    def __init__(self, what: _Optional[str] = ..., ago_ms: _Optional[int] = ..., version: _Optional[int] = ..., chain_version: _Optional[int] = ..., to_target: _Optional[int] = ...) -> None: ...

class InspectChunkReply(_message.Message):
    __slots__ = ("committed", "pending", "early", "damaged", "unreadable", "chain_version", "events")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    EARLY_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    committed: ChunkVersion
    pending: ChunkVersion
    early: bool
    damaged: bool
    unreadable: bool
    chain_version: int
    events: _containers.RepeatedCompositeFieldContainer[ChunkEvent]
    def __init__(self, committed: _Optional[_Union[ChunkVersion, _Mapping]] = ..., pending: _Optional[_Union[ChunkVersion, _Mapping]] = ..., early: bool = ..., damaged: bool = ..., unreadable: bool = ..., chain_version: _Optional[int] = ..., events: _Optional[_Iterable[_Union[ChunkEvent, _Mapping]]] = ...) -> None: ...

class StartScrubRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StartScrubReply(_message.Message):
    __slots__ = ("began",)
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    began: bool
    def __init__(self, began: bool = ...) -> None: ...

class SpaceInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TargetSpace(_message.Message):
    __slots__ = ("target", "capacity_bytes", "used_bytes", "free_bytes", "chunks", "room_bytes")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    ROOM_BYTES_FIELD_NUMBER: _ClassVar[int]
    target: int
    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    chunks: int
    room_bytes: int
    def __init__(self, target: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., chunks: _Optional[int] = ..., room_bytes: _Optional[int] = ...) -> None: ...

class SpaceInfoReply(_message.Message):
    __slots__ = ("targets",)
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedCompositeFieldContainer[TargetSpace]
    def __init__(self, targets: _Optional[_Iterable[_Union[TargetSpace, _Mapping]]] = ...) -> None: ...
