from threefs.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadSnapshotRequest(_message.Message):
    __slots__ = ("snapshot", "after", "begun")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    after: bytes
    begun: bool
    def __init__(self, snapshot: _Optional[int] = ..., after: _Optional[bytes] = ..., begun: bool = ...) -> None: ...

class StoredPair(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class ReadSnapshotReply(_message.Message):
    __slots__ = ("snapshot", "lineage", "sequence", "pairs", "more")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    lineage: str
    sequence: int
    pairs: _containers.RepeatedCompositeFieldContainer[StoredPair]
    more: bool
    def __init__(self, snapshot: _Optional[int] = ..., lineage: _Optional[str] = ..., sequence: _Optional[int] = ..., pairs: _Optional[_Iterable[_Union[StoredPair, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("lineage", "after", "checksum")
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    lineage: str
    after: int
    checksum: int
    def __init__(self, lineage: _Optional[str] = ..., after: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class LogWrite(_message.Message):
    __slots__ = ("first", "changes", "batch")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    first: int
    changes: int
    batch: bytes
    def __init__(self, first: _Optional[int] = ..., changes: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class ReadLogReply(_message.Message):
    __slots__ = ("writes", "more")
    WRITES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[LogWrite]
    more: bool
    def __init__(self, writes: _Optional[_Iterable[_Union[LogWrite, _Mapping]]] = ..., more: bool = ...) -> None: ...
