from threefs.wire import meta_pb2 as _meta_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryRecord(_message.Message):
    __slots__ = ("inode", "type")
    INODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    inode: int
    type: _meta_pb2.InodeType
    def __init__(self, inode: _Optional[int] = ..., type: _Optional[_Union[_meta_pb2.InodeType, str]] = ...) -> None: ...

class DirectoryTimes(_message.Message):
    __slots__ = ("mtime_ns", "ctime_ns", "token")
    MTIME_NS_FIELD_NUMBER: _ClassVar[int]
    CTIME_NS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    mtime_ns: int
    ctime_ns: int
    token: int
    def __init__(self, mtime_ns: _Optional[int] = ..., ctime_ns: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class WriteSession(_message.Message):
    __slots__ = ("client", "opened_ns", "lease")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    OPENED_NS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    opened_ns: int
    lease: int
    def __init__(self, client: _Optional[bytes] = ..., opened_ns: _Optional[int] = ..., lease: _Optional[int] = ...) -> None: ...

class Replay(_message.Message):
    __slots__ = ("method", "reply", "tick", "code", "message")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    method: int
    reply: bytes
    tick: int
    code: int
    message: str
    def __init__(self, method: _Optional[int] = ..., reply: _Optional[bytes] = ..., tick: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Removal(_message.Message):
    __slots__ = ("type", "removed_ns")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NS_FIELD_NUMBER: _ClassVar[int]
    type: _meta_pb2.InodeType
    removed_ns: int
    def __init__(self, type: _Optional[_Union[_meta_pb2.InodeType, str]] = ..., removed_ns: _Optional[int] = ...) -> None: ...

class XattrRecord(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class Counter(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: int
    def __init__(self, value: _Optional[int] = ...) -> None: ...

class ClientLease(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class Renewal(_message.Message):
    __slots__ = ("stamp", "number")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    stamp: int
    number: int
    def __init__(self, stamp: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class CutMark(_message.Message):
    __slots__ = ("stamp",)
    STAMP_FIELD_NUMBER: _ClassVar[int]
    stamp: int
    def __init__(self, stamp: _Optional[int] = ...) -> None: ...

class ReadHold(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class ClientLocks(_message.Message):
    __slots__ = ("lease", "locks")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LOCKS_FIELD_NUMBER: _ClassVar[int]
    lease: int
    locks: _containers.RepeatedCompositeFieldContainer[_meta_pb2.FileLock]
    def __init__(self, lease: _Optional[int] = ..., locks: _Optional[_Iterable[_Union[_meta_pb2.FileLock, _Mapping]]] = ...) -> None: ...

class EndedLease(_message.Message):
    __slots__ = ("client",)
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    def __init__(self, client: _Optional[bytes] = ...) -> None: ...

class UsageDelta(_message.Message):
    __slots__ = ("charges",)
    CHARGES_FIELD_NUMBER: _ClassVar[int]
    charges: _containers.RepeatedCompositeFieldContainer[Charge]
    def __init__(self, charges: _Optional[_Iterable[_Union[Charge, _Mapping]]] = ...) -> None: ...

class Charge(_message.Message):
    __slots__ = ("account", "bytes", "inodes")
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    account: bytes
    bytes: int
    inodes: int
    def __init__(self, account: _Optional[bytes] = ..., bytes: _Optional[int] = ..., inodes: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("bytes", "inodes", "changes")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    inodes: int
    changes: int
    def __init__(self, bytes: _Optional[int] = ..., inodes: _Optional[int] = ..., changes: _Optional[int] = ...) -> None: ...

class QuotaLimits(_message.Message):
    __slots__ = ("bytes", "inodes", "parent", "ended")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    inodes: int
    parent: int
    ended: bool
    def __init__(self, bytes: _Optional[int] = ..., inodes: _Optional[int] = ..., parent: _Optional[int] = ..., ended: bool = ...) -> None: ...

class Retag(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: bytes
    def __init__(self, after: _Optional[bytes] = ...) -> None: ...

class Trashed(_message.Message):
    __slots__ = ("inode", "path", "removed_ns", "uid")
    INODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    inode: int
    path: bytes
    removed_ns: int
    uid: int
    def __init__(self, inode: _Optional[int] = ..., path: _Optional[bytes] = ..., removed_ns: _Optional[int] = ..., uid: _Optional[int] = ...) -> None: ...

class LockWait(_message.Message):
    __slots__ = ("lease", "inode", "lock", "stamp")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    lease: int
    inode: int
    lock: _meta_pb2.FileLock
    stamp: int
    def __init__(self, lease: _Optional[int] = ..., inode: _Optional[int] = ..., lock: _Optional[_Union[_meta_pb2.FileLock, _Mapping]] = ..., stamp: _Optional[int] = ...) -> None: ...

class StoreRecord(_message.Message):
    __slots__ = ("store_id", "cluster_id", "epoch", "restored_ns", "first_number")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESTORED_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    cluster_id: str
    epoch: int
    restored_ns: int
    first_number: int
    def __init__(self, store_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., restored_ns: _Optional[int] = ..., first_number: _Optional[int] = ...) -> None: ...

class RestoreMark(_message.Message):
    __slots__ = ("complete", "as_of_ns", "restore_id")
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_NS_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    as_of_ns: int
    restore_id: str
    def __init__(self, complete: bool = ..., as_of_ns: _Optional[int] = ..., restore_id: _Optional[str] = ...) -> None: ...
