from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor
NUMBER_FIELD_NUMBER: _ClassVar[int]
number: _descriptor.FieldDescriptor

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "cluster_id", "client_id", "program", "traffic_class", "max_calls", "max_inflight_bytes", "max_payload_bytes", "max_body_bytes", "features", "nonce", "proof")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_CLASS_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_FIELD_NUMBER: _ClassVar[int]
    MAX_INFLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    cluster_id: str
    client_id: str
    program: str
    traffic_class: int
    max_calls: int
    max_inflight_bytes: int
    max_payload_bytes: int
    max_body_bytes: int
    features: int
    nonce: bytes
    proof: bytes
    def __init__(self, protocol: _Optional[int] = ..., cluster_id: _Optional[str] = ..., client_id: _Optional[str] = ..., program: _Optional[str] = ..., traffic_class: _Optional[int] = ..., max_calls: _Optional[int] = ..., max_inflight_bytes: _Optional[int] = ..., max_payload_bytes: _Optional[int] = ..., max_body_bytes: _Optional[int] = ..., features: _Optional[int] = ..., nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "routing_version")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_VERSION_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    routing_version: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., routing_version: _Optional[int] = ...) -> None: ...

class ChunkId(_message.Message):
    __slots__ = ("inode", "index")
    INODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    inode: int
    index: int
    def __init__(self, inode: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class WriteIdentity(_message.Message):
    __slots__ = ("client", "channel", "seq")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    channel: int
    seq: int
    def __init__(self, client: _Optional[bytes] = ..., channel: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class StoreDisk(_message.Message):
    __slots__ = ("directory", "capacity_bytes", "free_bytes", "full", "needed_bytes", "removals_only")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_ONLY_FIELD_NUMBER: _ClassVar[int]
    directory: str
    capacity_bytes: int
    free_bytes: int
    full: bool
    needed_bytes: int
    removals_only: bool
    def __init__(self, directory: _Optional[str] = ..., capacity_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., full: bool = ..., needed_bytes: _Optional[int] = ..., removals_only: bool = ...) -> None: ...
