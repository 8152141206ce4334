from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EtcdOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ETCD_UNSORTED: _ClassVar[EtcdOrder]
    ETCD_ASCENDING: _ClassVar[EtcdOrder]
    ETCD_DESCENDING: _ClassVar[EtcdOrder]
ETCD_UNSORTED: EtcdOrder
ETCD_ASCENDING: EtcdOrder
ETCD_DESCENDING: EtcdOrder

class EtcdHeader(_message.Message):
    __slots__ = ("member_id", "revision")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    member_id: int
    revision: int
    def __init__(self, member_id: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class EtcdPair(_message.Message):
    __slots__ = ("key", "mod_revision", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    mod_revision: int
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., mod_revision: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class EtcdRange(_message.Message):
    __slots__ = ("key", "range_end", "limit", "revision", "sort_order", "serializable", "keys_only", "count_only")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SORT_ORDER_FIELD_NUMBER: _ClassVar[int]
    SERIALIZABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    limit: int
    revision: int
    sort_order: EtcdOrder
    serializable: bool
    keys_only: bool
    count_only: bool
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., limit: _Optional[int] = ..., revision: _Optional[int] = ..., sort_order: _Optional[_Union[EtcdOrder, str]] = ..., serializable: bool = ..., keys_only: bool = ..., count_only: bool = ...) -> None: ...

class EtcdRangeReply(_message.Message):
    __slots__ = ("header", "kvs", "more", "count")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    KVS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    header: EtcdHeader
    kvs: _containers.RepeatedCompositeFieldContainer[EtcdPair]
    more: bool
    count: int
    def __init__(self, header: _Optional[_Union[EtcdHeader, _Mapping]] = ..., kvs: _Optional[_Iterable[_Union[EtcdPair, _Mapping]]] = ..., more: bool = ..., count: _Optional[int] = ...) -> None: ...

class EtcdPut(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class EtcdDelete(_message.Message):
    __slots__ = ("key", "range_end")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ...) -> None: ...

class EtcdOperation(_message.Message):
    __slots__ = ("range", "put", "delete")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    range: EtcdRange
    put: EtcdPut
    delete: EtcdDelete
    def __init__(self, range: _Optional[_Union[EtcdRange, _Mapping]] = ..., put: _Optional[_Union[EtcdPut, _Mapping]] = ..., delete: _Optional[_Union[EtcdDelete, _Mapping]] = ...) -> None: ...

class EtcdResult(_message.Message):
    __slots__ = ("range",)
    RANGE_FIELD_NUMBER: _ClassVar[int]
    range: EtcdRangeReply
    def __init__(self, range: _Optional[_Union[EtcdRangeReply, _Mapping]] = ...) -> None: ...

class EtcdCompare(_message.Message):
    __slots__ = ("result", "target", "key", "mod_revision", "range_end")
    class Result(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EQUAL: _ClassVar[EtcdCompare.Result]
        GREATER: _ClassVar[EtcdCompare.Result]
        LESS: _ClassVar[EtcdCompare.Result]
    EQUAL: EtcdCompare.Result
    GREATER: EtcdCompare.Result
    LESS: EtcdCompare.Result
    class Target(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERSION: _ClassVar[EtcdCompare.Target]
        CREATE: _ClassVar[EtcdCompare.Target]
        MOD: _ClassVar[EtcdCompare.Target]
    VERSION: EtcdCompare.Target
    CREATE: EtcdCompare.Target
    MOD: EtcdCompare.Target
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    result: EtcdCompare.Result
    target: EtcdCompare.Target
    key: bytes
    mod_revision: int
    range_end: bytes
    def __init__(self, result: _Optional[_Union[EtcdCompare.Result, str]] = ..., target: _Optional[_Union[EtcdCompare.Target, str]] = ..., key: _Optional[bytes] = ..., mod_revision: _Optional[int] = ..., range_end: _Optional[bytes] = ...) -> None: ...

class EtcdTxn(_message.Message):
    __slots__ = ("compare", "success", "failure")
    COMPARE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    compare: _containers.RepeatedCompositeFieldContainer[EtcdCompare]
    success: _containers.RepeatedCompositeFieldContainer[EtcdOperation]
    failure: _containers.RepeatedCompositeFieldContainer[EtcdOperation]
    def __init__(self, compare: _Optional[_Iterable[_Union[EtcdCompare, _Mapping]]] = ..., success: _Optional[_Iterable[_Union[EtcdOperation, _Mapping]]] = ..., failure: _Optional[_Iterable[_Union[EtcdOperation, _Mapping]]] = ...) -> None: ...

class EtcdTxnReply(_message.Message):
    __slots__ = ("header", "succeeded", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: EtcdHeader
    succeeded: bool
    responses: _containers.RepeatedCompositeFieldContainer[EtcdResult]
    def __init__(self, header: _Optional[_Union[EtcdHeader, _Mapping]] = ..., succeeded: bool = ..., responses: _Optional[_Iterable[_Union[EtcdResult, _Mapping]]] = ...) -> None: ...

class EtcdAuthenticate(_message.Message):
    __slots__ = ("name", "password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    password: str
    def __init__(self, name: _Optional[str] = ..., password: _Optional[str] = ...) -> None: ...

class EtcdToken(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class EtcdStatus(_message.Message):
    __slots__ = ("header", "version", "db_size_bytes", "leader")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DB_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    header: EtcdHeader
    version: str
    db_size_bytes: int
    leader: int
    def __init__(self, header: _Optional[_Union[EtcdHeader, _Mapping]] = ..., version: _Optional[str] = ..., db_size_bytes: _Optional[int] = ..., leader: _Optional[int] = ...) -> None: ...

class EtcdGrant(_message.Message):
    __slots__ = ("user", "role")
    USER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    user: str
    role: str
    def __init__(self, user: _Optional[str] = ..., role: _Optional[str] = ...) -> None: ...

class EtcdEnable(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EtcdDone(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: EtcdHeader
    def __init__(self, header: _Optional[_Union[EtcdHeader, _Mapping]] = ...) -> None: ...
