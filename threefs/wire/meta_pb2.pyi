from threefs.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INODE_TYPE_UNSPECIFIED: _ClassVar[InodeType]
    FILE: _ClassVar[InodeType]
    DIRECTORY: _ClassVar[InodeType]
    SYMLINK: _ClassVar[InodeType]
    FIFO: _ClassVar[InodeType]
    SOCKET: _ClassVar[InodeType]
    CHARACTER_DEVICE: _ClassVar[InodeType]
    BLOCK_DEVICE: _ClassVar[InodeType]

class AclTag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_TAG_UNSPECIFIED: _ClassVar[AclTag]
    ACL_OWNER: _ClassVar[AclTag]
    ACL_NAMED_USER: _ClassVar[AclTag]
    ACL_GROUP: _ClassVar[AclTag]
    ACL_NAMED_GROUP: _ClassVar[AclTag]
    ACL_MASK: _ClassVar[AclTag]
    ACL_OTHERS: _ClassVar[AclTag]

class RemoveKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANYTHING: _ClassVar[RemoveKind]
    NOT_DIRECTORY: _ClassVar[RemoveKind]
    ONLY_DIRECTORY: _ClassVar[RemoveKind]

class FsckTable(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FSCK_TABLE_UNSPECIFIED: _ClassVar[FsckTable]
    FSCK_ENTRIES: _ClassVar[FsckTable]
    FSCK_INODES: _ClassVar[FsckTable]
    FSCK_QUEUE: _ClassVar[FsckTable]
    FSCK_ATTACHED: _ClassVar[FsckTable]
    FSCK_USAGE: _ClassVar[FsckTable]

class FsckKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FSCK_KIND_UNSPECIFIED: _ClassVar[FsckKind]
    UNREADABLE_RECORD: _ClassVar[FsckKind]
    ROOT_MISSING: _ClassVar[FsckKind]
    DANGLING_ENTRY: _ClassVar[FsckKind]
    LOST_ENTRY: _ClassVar[FsckKind]
    WRONG_TYPE: _ClassVar[FsckKind]
    EXTRA_NAME: _ClassVar[FsckKind]
    WRONG_PARENT: _ClassVar[FsckKind]
    WRONG_LINKS: _ClassVar[FsckKind]
    ORPHAN: _ClassVar[FsckKind]
    LOOP: _ClassVar[FsckKind]
    NOT_QUEUED: _ClassVar[FsckKind]
    QUEUED_NOTHING: _ClassVar[FsckKind]
    QUEUED_NAMED: _ClassVar[FsckKind]
    ATTACHED_TO_NOTHING: _ClassVar[FsckKind]
    FREE_NUMBER: _ClassVar[FsckKind]
    HELD_BY_NOBODY: _ClassVar[FsckKind]
    WRONG_LENGTH: _ClassVar[FsckKind]
    NOT_COUNTED: _ClassVar[FsckKind]
    WRONG_USAGE: _ClassVar[FsckKind]

class LockKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCK_KIND_UNSPECIFIED: _ClassVar[LockKind]
    RECORD_LOCK: _ClassVar[LockKind]
    FLOCK: _ClassVar[LockKind]

class LockType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOCK_TYPE_UNSPECIFIED: _ClassVar[LockType]
    UNLOCK: _ClassVar[LockType]
    SHARED: _ClassVar[LockType]
    EXCLUSIVE: _ClassVar[LockType]
INODE_TYPE_UNSPECIFIED: InodeType
FILE: InodeType
DIRECTORY: InodeType
SYMLINK: InodeType
FIFO: InodeType
SOCKET: InodeType
CHARACTER_DEVICE: InodeType
BLOCK_DEVICE: InodeType
ACL_TAG_UNSPECIFIED: AclTag
ACL_OWNER: AclTag
ACL_NAMED_USER: AclTag
ACL_GROUP: AclTag
ACL_NAMED_GROUP: AclTag
ACL_MASK: AclTag
ACL_OTHERS: AclTag
ANYTHING: RemoveKind
NOT_DIRECTORY: RemoveKind
ONLY_DIRECTORY: RemoveKind
FSCK_TABLE_UNSPECIFIED: FsckTable
FSCK_ENTRIES: FsckTable
FSCK_INODES: FsckTable
FSCK_QUEUE: FsckTable
FSCK_ATTACHED: FsckTable
FSCK_USAGE: FsckTable
FSCK_KIND_UNSPECIFIED: FsckKind
UNREADABLE_RECORD: FsckKind
ROOT_MISSING: FsckKind
DANGLING_ENTRY: FsckKind
LOST_ENTRY: FsckKind
WRONG_TYPE: FsckKind
EXTRA_NAME: FsckKind
WRONG_PARENT: FsckKind
WRONG_LINKS: FsckKind
ORPHAN: FsckKind
LOOP: FsckKind
NOT_QUEUED: FsckKind
QUEUED_NOTHING: FsckKind
QUEUED_NAMED: FsckKind
ATTACHED_TO_NOTHING: FsckKind
FREE_NUMBER: FsckKind
HELD_BY_NOBODY: FsckKind
WRONG_LENGTH: FsckKind
NOT_COUNTED: FsckKind
WRONG_USAGE: FsckKind
LOCK_KIND_UNSPECIFIED: LockKind
RECORD_LOCK: LockKind
FLOCK: LockKind
LOCK_TYPE_UNSPECIFIED: LockType
UNLOCK: LockType
SHARED: LockType
EXCLUSIVE: LockType

class Place(_message.Message):
    __slots__ = ("base", "path", "named", "moves")
    BASE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    base: int
    path: bytes
    named: bool
    moves: int
    def __init__(self, base: _Optional[int] = ..., path: _Optional[bytes] = ..., named: bool = ..., moves: _Optional[int] = ...) -> None: ...

class Mutation(_message.Message):
    __slots__ = ("client", "request", "again")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    request: int
    again: bool
    def __init__(self, client: _Optional[bytes] = ..., request: _Optional[int] = ..., again: bool = ...) -> None: ...

class Caller(_message.Message):
    __slots__ = ("uid", "gid", "groups")
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    uid: int
    gid: int
    groups: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, uid: _Optional[int] = ..., gid: _Optional[int] = ..., groups: _Optional[_Iterable[int]] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ("chunk_bytes", "table_id", "stripe", "table_offset", "seed")
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    STRIPE_FIELD_NUMBER: _ClassVar[int]
    TABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    chunk_bytes: int
    table_id: int
    stripe: int
    table_offset: int
    seed: int
    def __init__(self, chunk_bytes: _Optional[int] = ..., table_id: _Optional[int] = ..., stripe: _Optional[int] = ..., table_offset: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class Inode(_message.Message):
    __slots__ = ("inode", "type", "mode", "uid", "gid", "nlink", "length", "truncate_version", "parent", "layout", "target", "atime_ns", "mtime_ns", "ctime_ns", "birth_ns", "name", "tree", "by_user", "trash_s", "trash", "unnamed", "chains_used", "rdev", "xattr_bytes", "access_acl", "default_acl", "delegation", "change", "fence", "append_end", "appends", "cutting", "moves", "freed")
    INODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    NLINK_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ATIME_NS_FIELD_NUMBER: _ClassVar[int]
    MTIME_NS_FIELD_NUMBER: _ClassVar[int]
    CTIME_NS_FIELD_NUMBER: _ClassVar[int]
    BIRTH_NS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    BY_USER_FIELD_NUMBER: _ClassVar[int]
    TRASH_S_FIELD_NUMBER: _ClassVar[int]
    TRASH_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    CHAINS_USED_FIELD_NUMBER: _ClassVar[int]
    RDEV_FIELD_NUMBER: _ClassVar[int]
    XATTR_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACCESS_ACL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ACL_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    APPEND_END_FIELD_NUMBER: _ClassVar[int]
    APPENDS_FIELD_NUMBER: _ClassVar[int]
    CUTTING_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    inode: int
    type: InodeType
    mode: int
    uid: int
    gid: int
    nlink: int
    length: int
    truncate_version: int
    parent: int
    layout: Layout
    target: bytes
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    birth_ns: int
    name: bytes
    tree: int
    by_user: bool
    trash_s: int
    trash: bool
    unnamed: bool
    chains_used: int
    rdev: int
    xattr_bytes: int
    access_acl: Acl
    default_acl: Acl
    delegation: Delegation
    change: int
    fence: int
    append_end: int
    appends: _containers.RepeatedCompositeFieldContainer[Append]
    cutting: int
    moves: int
    freed: bool
    def __init__(self, inode: _Optional[int] = ..., type: _Optional[_Union[InodeType, str]] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., nlink: _Optional[int] = ..., length: _Optional[int] = ..., truncate_version: _Optional[int] = ..., parent: _Optional[int] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., target: _Optional[bytes] = ..., atime_ns: _Optional[int] = ..., mtime_ns: _Optional[int] = ..., ctime_ns: _Optional[int] = ..., birth_ns: _Optional[int] = ..., name: _Optional[bytes] = ..., tree: _Optional[int] = ..., by_user: bool = ..., trash_s: _Optional[int] = ..., trash: bool = ..., unnamed: bool = ..., chains_used: _Optional[int] = ..., rdev: _Optional[int] = ..., xattr_bytes: _Optional[int] = ..., access_acl: _Optional[_Union[Acl, _Mapping]] = ..., default_acl: _Optional[_Union[Acl, _Mapping]] = ..., delegation: _Optional[_Union[Delegation, _Mapping]] = ..., change: _Optional[int] = ..., fence: _Optional[int] = ..., append_end: _Optional[int] = ..., appends: _Optional[_Iterable[_Union[Append, _Mapping]]] = ..., cutting: _Optional[int] = ..., moves: _Optional[int] = ..., freed: bool = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("writer", "offset", "end", "truncate_version")
    WRITER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    writer: int
    offset: int
    end: int
    truncate_version: int
    def __init__(self, writer: _Optional[int] = ..., offset: _Optional[int] = ..., end: _Optional[int] = ..., truncate_version: _Optional[int] = ...) -> None: ...

class Delegation(_message.Message):
    __slots__ = ("client", "number", "oldest", "recalled", "recalled_tick")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    RECALLED_TICK_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    number: int
    oldest: int
    recalled: bool
    recalled_tick: int
    def __init__(self, client: _Optional[bytes] = ..., number: _Optional[int] = ..., oldest: _Optional[int] = ..., recalled: bool = ..., recalled_tick: _Optional[int] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AclEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AclEntry, _Mapping]]] = ...) -> None: ...

class AclEntry(_message.Message):
    __slots__ = ("tag", "permissions", "id")
    TAG_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tag: AclTag
    permissions: int
    id: int
    def __init__(self, tag: _Optional[_Union[AclTag, str]] = ..., permissions: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class InodeReply(_message.Message):
    __slots__ = ("inode", "replaced", "over_quota", "delegation", "recalled")
    INODE_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    OVER_QUOTA_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    inode: Inode
    replaced: Inode
    over_quota: bool
    delegation: int
    recalled: int
    def __init__(self, inode: _Optional[_Union[Inode, _Mapping]] = ..., replaced: _Optional[_Union[Inode, _Mapping]] = ..., over_quota: bool = ..., delegation: _Optional[int] = ..., recalled: _Optional[int] = ...) -> None: ...

class CreateRequest(_message.Message):
    __slots__ = ("mutation", "place", "mode", "uid", "gid", "exclusive", "truncate", "parents", "layout", "session", "caller", "umask", "access", "unnamed")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    UNNAMED_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    mode: int
    uid: int
    gid: int
    exclusive: bool
    truncate: bool
    parents: bool
    layout: Layout
    session: bytes
    caller: Caller
    umask: int
    access: int
    unnamed: bool
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., exclusive: bool = ..., truncate: bool = ..., parents: bool = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., session: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., umask: _Optional[int] = ..., access: _Optional[int] = ..., unnamed: bool = ...) -> None: ...

class CreateReply(_message.Message):
    __slots__ = ("inode", "created", "lease", "over_quota", "delegation", "recalled")
    INODE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OVER_QUOTA_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_FIELD_NUMBER: _ClassVar[int]
    RECALLED_FIELD_NUMBER: _ClassVar[int]
    inode: Inode
    created: bool
    lease: int
    over_quota: bool
    delegation: int
    recalled: int
    def __init__(self, inode: _Optional[_Union[Inode, _Mapping]] = ..., created: bool = ..., lease: _Optional[int] = ..., over_quota: bool = ..., delegation: _Optional[int] = ..., recalled: _Optional[int] = ...) -> None: ...

class PrecreateRequest(_message.Message):
    __slots__ = ("mutation", "place", "count", "session", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    count: int
    session: bytes
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., count: _Optional[int] = ..., session: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class PrecreateReply(_message.Message):
    __slots__ = ("inodes", "lease")
    INODES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    inodes: _containers.RepeatedCompositeFieldContainer[Inode]
    lease: int
    def __init__(self, inodes: _Optional[_Iterable[_Union[Inode, _Mapping]]] = ..., lease: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("mutation", "inode", "session", "place", "mode", "uid", "gid", "length", "replace", "parents", "caller", "umask")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    inode: int
    session: bytes
    place: Place
    mode: int
    uid: int
    gid: int
    length: int
    replace: bool
    parents: bool
    caller: Caller
    umask: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., inode: _Optional[int] = ..., session: _Optional[bytes] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., length: _Optional[int] = ..., replace: bool = ..., parents: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., umask: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("mutation", "place", "session", "truncate", "caller", "access")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    session: bytes
    truncate: bool
    caller: Caller
    access: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., session: _Optional[bytes] = ..., truncate: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., access: _Optional[int] = ...) -> None: ...

class OpenReply(_message.Message):
    __slots__ = ("inode", "lease", "over_quota")
    INODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OVER_QUOTA_FIELD_NUMBER: _ClassVar[int]
    inode: Inode
    lease: int
    over_quota: bool
    def __init__(self, inode: _Optional[_Union[Inode, _Mapping]] = ..., lease: _Optional[int] = ..., over_quota: bool = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("mutation", "inode", "session", "length_hint", "truncate_version", "exact", "written", "attempted_end", "shown_ns", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_HINT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_END_FIELD_NUMBER: _ClassVar[int]
    SHOWN_NS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    inode: int
    session: bytes
    length_hint: int
    truncate_version: int
    exact: bool
    written: bool
    attempted_end: int
    shown_ns: int
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., inode: _Optional[int] = ..., session: _Optional[bytes] = ..., length_hint: _Optional[int] = ..., truncate_version: _Optional[int] = ..., exact: bool = ..., written: bool = ..., attempted_end: _Optional[int] = ..., shown_ns: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("mutation", "inode", "length_hint", "truncate_version", "exact", "written", "session", "appends_end", "appends_version", "attempted_end", "shown_ns", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_HINT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    APPENDS_END_FIELD_NUMBER: _ClassVar[int]
    APPENDS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTED_END_FIELD_NUMBER: _ClassVar[int]
    SHOWN_NS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    inode: int
    length_hint: int
    truncate_version: int
    exact: bool
    written: bool
    session: bytes
    appends_end: int
    appends_version: int
    attempted_end: int
    shown_ns: int
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., inode: _Optional[int] = ..., length_hint: _Optional[int] = ..., truncate_version: _Optional[int] = ..., exact: bool = ..., written: bool = ..., session: _Optional[bytes] = ..., appends_end: _Optional[int] = ..., appends_version: _Optional[int] = ..., attempted_end: _Optional[int] = ..., shown_ns: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("place", "follow", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    follow: bool
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class BatchStatRequest(_message.Message):
    __slots__ = ("places", "follow", "paths", "base", "caller")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    follow: bool
    paths: _containers.RepeatedScalarFieldContainer[bytes]
    base: int
    caller: Caller
    def __init__(self, places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., follow: bool = ..., paths: _Optional[_Iterable[bytes]] = ..., base: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class BatchStatReply(_message.Message):
    __slots__ = ("results", "inodes", "errors")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[StatResult]
    inodes: _containers.RepeatedCompositeFieldContainer[Inode]
    errors: _containers.RepeatedCompositeFieldContainer[StatError]
    def __init__(self, results: _Optional[_Iterable[_Union[StatResult, _Mapping]]] = ..., inodes: _Optional[_Iterable[_Union[Inode, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[StatError, _Mapping]]] = ...) -> None: ...

class StatError(_message.Message):
    __slots__ = ("number", "code", "message")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    code: int
    message: str
    def __init__(self, number: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class StatResult(_message.Message):
    __slots__ = ("code", "inode", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    inode: Inode
    message: str
    def __init__(self, code: _Optional[int] = ..., inode: _Optional[_Union[Inode, _Mapping]] = ..., message: _Optional[str] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("parent", "name", "caller")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    parent: int
    name: bytes
    caller: Caller
    def __init__(self, parent: _Optional[int] = ..., name: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("place", "after", "limit", "attributes", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    after: bytes
    limit: int
    attributes: bool
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., after: _Optional[bytes] = ..., limit: _Optional[int] = ..., attributes: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("name", "inode", "type", "attributes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    inode: int
    type: InodeType
    attributes: Inode
    def __init__(self, name: _Optional[bytes] = ..., inode: _Optional[int] = ..., type: _Optional[_Union[InodeType, str]] = ..., attributes: _Optional[_Union[Inode, _Mapping]] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("entries", "more")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    more: bool
    def __init__(self, entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ListNamesRequest(_message.Message):
    __slots__ = ("directory", "after", "limit", "known", "attributes_up_to", "caller")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_UP_TO_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    directory: int
    after: bytes
    limit: int
    known: int
    attributes_up_to: int
    caller: Caller
    def __init__(self, directory: _Optional[int] = ..., after: _Optional[bytes] = ..., limit: _Optional[int] = ..., known: _Optional[int] = ..., attributes_up_to: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListNamesReply(_message.Message):
    __slots__ = ("names", "inodes", "types", "attributes", "more", "token", "unchanged")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    inodes: bytes
    types: bytes
    attributes: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    token: int
    unchanged: bool
    def __init__(self, names: _Optional[bytes] = ..., inodes: _Optional[bytes] = ..., types: _Optional[bytes] = ..., attributes: _Optional[_Iterable[bytes]] = ..., more: bool = ..., token: _Optional[int] = ..., unchanged: bool = ...) -> None: ...

class DelegateRequest(_message.Message):
    __slots__ = ("mutation", "directory", "oldest")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    directory: int
    oldest: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., directory: _Optional[int] = ..., oldest: _Optional[int] = ...) -> None: ...

class DelegateReply(_message.Message):
    __slots__ = ("delegation",)
    DELEGATION_FIELD_NUMBER: _ClassVar[int]
    delegation: int
    def __init__(self, delegation: _Optional[int] = ...) -> None: ...

class ReturnDelegationRequest(_message.Message):
    __slots__ = ("client", "directories", "numbers")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    directories: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[bytes] = ..., directories: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class ReturnDelegationReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MkdirRequest(_message.Message):
    __slots__ = ("mutation", "place", "mode", "uid", "gid", "parents", "layout", "caller", "umask")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    mode: int
    uid: int
    gid: int
    parents: bool
    layout: Layout
    caller: Caller
    umask: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., parents: bool = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., umask: _Optional[int] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("mutation", "place", "recursive", "kind", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    recursive: bool
    kind: RemoveKind
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., recursive: bool = ..., kind: _Optional[_Union[RemoveKind, str]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class RemoveReply(_message.Message):
    __slots__ = ("directory", "changed_ns")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_NS_FIELD_NUMBER: _ClassVar[int]
    directory: Inode
    changed_ns: int
    def __init__(self, directory: _Optional[_Union[Inode, _Mapping]] = ..., changed_ns: _Optional[int] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("mutation", "changes", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("create", "remove", "close", "sync", "publish", "rename")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    RENAME_FIELD_NUMBER: _ClassVar[int]
    create: CreateRequest
    remove: RemoveRequest
    close: CloseRequest
    sync: SyncRequest
    publish: PublishRequest
    rename: RenameRequest
    def __init__(self, create: _Optional[_Union[CreateRequest, _Mapping]] = ..., remove: _Optional[_Union[RemoveRequest, _Mapping]] = ..., close: _Optional[_Union[CloseRequest, _Mapping]] = ..., sync: _Optional[_Union[SyncRequest, _Mapping]] = ..., publish: _Optional[_Union[PublishRequest, _Mapping]] = ..., rename: _Optional[_Union[RenameRequest, _Mapping]] = ...) -> None: ...

class BatchReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Changed]
    def __init__(self, results: _Optional[_Iterable[_Union[Changed, _Mapping]]] = ...) -> None: ...

class Changed(_message.Message):
    __slots__ = ("code", "message", "create", "request", "retry_alone", "file", "remove")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RETRY_ALONE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    create: CreateReply
    request: int
    retry_alone: bool
    file: InodeReply
    remove: RemoveReply
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., create: _Optional[_Union[CreateReply, _Mapping]] = ..., request: _Optional[int] = ..., retry_alone: bool = ..., file: _Optional[_Union[InodeReply, _Mapping]] = ..., remove: _Optional[_Union[RemoveReply, _Mapping]] = ...) -> None: ...

class RenameRequest(_message.Message):
    __slots__ = ("mutation", "source", "destination", "no_replace", "caller", "exchange", "whiteout", "always_moves")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    NO_REPLACE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    WHITEOUT_FIELD_NUMBER: _ClassVar[int]
    ALWAYS_MOVES_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    source: Place
    destination: Place
    no_replace: bool
    caller: Caller
    exchange: bool
    whiteout: bool
    always_moves: bool
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., source: _Optional[_Union[Place, _Mapping]] = ..., destination: _Optional[_Union[Place, _Mapping]] = ..., no_replace: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., exchange: bool = ..., whiteout: bool = ..., always_moves: bool = ...) -> None: ...

class SymlinkRequest(_message.Message):
    __slots__ = ("mutation", "place", "target", "uid", "gid", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    target: bytes
    uid: int
    gid: int
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., target: _Optional[bytes] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class LinkRequest(_message.Message):
    __slots__ = ("mutation", "source", "destination", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    source: Place
    destination: Place
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., source: _Optional[_Union[Place, _Mapping]] = ..., destination: _Optional[_Union[Place, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class SetAttrRequest(_message.Message):
    __slots__ = ("mutation", "place", "follow", "mode", "uid", "gid", "atime_ns", "mtime_ns", "caller", "atime_now", "mtime_now", "drop_privileges")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    ATIME_NS_FIELD_NUMBER: _ClassVar[int]
    MTIME_NS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    ATIME_NOW_FIELD_NUMBER: _ClassVar[int]
    MTIME_NOW_FIELD_NUMBER: _ClassVar[int]
    DROP_PRIVILEGES_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    follow: bool
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    caller: Caller
    atime_now: bool
    mtime_now: bool
    drop_privileges: bool
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., atime_ns: _Optional[int] = ..., mtime_ns: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., atime_now: bool = ..., mtime_now: bool = ..., drop_privileges: bool = ...) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("mutation", "place", "length", "caller", "session")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    length: int
    caller: Caller
    session: bytes
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., length: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., session: _Optional[bytes] = ...) -> None: ...

class ReportAtimeRequest(_message.Message):
    __slots__ = ("inode", "ago_ms", "caller")
    INODE_FIELD_NUMBER: _ClassVar[int]
    AGO_MS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    inode: _containers.RepeatedScalarFieldContainer[int]
    ago_ms: _containers.RepeatedScalarFieldContainer[int]
    caller: Caller
    def __init__(self, inode: _Optional[_Iterable[int]] = ..., ago_ms: _Optional[_Iterable[int]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ReportAtimeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLayoutRequest(_message.Message):
    __slots__ = ("mutation", "place", "layout", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    layout: Layout
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class StatFsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatFsReply(_message.Message):
    __slots__ = ("capacity_bytes", "used_bytes", "free_bytes", "inodes", "replicas")
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    capacity_bytes: int
    used_bytes: int
    free_bytes: int
    inodes: int
    replicas: int
    def __init__(self, capacity_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., inodes: _Optional[int] = ..., replicas: _Optional[int] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("client", "hold", "drop", "end", "number")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    hold: _containers.RepeatedScalarFieldContainer[int]
    drop: _containers.RepeatedScalarFieldContainer[int]
    end: int
    number: int
    def __init__(self, client: _Optional[bytes] = ..., hold: _Optional[_Iterable[int]] = ..., drop: _Optional[_Iterable[int]] = ..., end: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class RenewLeaseReply(_message.Message):
    __slots__ = ("lease", "gone")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    gone: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lease: _Optional[int] = ..., gone: _Optional[_Iterable[int]] = ...) -> None: ...

class FsckUsage(_message.Message):
    __slots__ = ("account", "bytes", "inodes", "changes")
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    INODES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    account: bytes
    bytes: int
    inodes: int
    changes: int
    def __init__(self, account: _Optional[bytes] = ..., bytes: _Optional[int] = ..., inodes: _Optional[int] = ..., changes: _Optional[int] = ...) -> None: ...

class FsckScanRequest(_message.Message):
    __slots__ = ("table", "after", "limit", "wanted")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    table: FsckTable
    after: bytes
    limit: int
    wanted: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, table: _Optional[_Union[FsckTable, str]] = ..., after: _Optional[bytes] = ..., limit: _Optional[int] = ..., wanted: _Optional[_Iterable[int]] = ...) -> None: ...

class FsckScanReply(_message.Message):
    __slots__ = ("after", "more", "rows", "inode", "type", "nlink", "parent", "names", "suspects", "usage", "restored_ns")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NLINK_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_NS_FIELD_NUMBER: _ClassVar[int]
    after: bytes
    more: bool
    rows: int
    inode: _containers.RepeatedScalarFieldContainer[int]
    type: _containers.RepeatedScalarFieldContainer[InodeType]
    nlink: _containers.RepeatedScalarFieldContainer[int]
    parent: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedCompositeFieldContainer[FsckName]
    suspects: _containers.RepeatedCompositeFieldContainer[FsckSubject]
    usage: _containers.RepeatedCompositeFieldContainer[FsckUsage]
    restored_ns: int
    def __init__(self, after: _Optional[bytes] = ..., more: bool = ..., rows: _Optional[int] = ..., inode: _Optional[_Iterable[int]] = ..., type: _Optional[_Iterable[_Union[InodeType, str]]] = ..., nlink: _Optional[_Iterable[int]] = ..., parent: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[_Union[FsckName, _Mapping]]] = ..., suspects: _Optional[_Iterable[_Union[FsckSubject, _Mapping]]] = ..., usage: _Optional[_Iterable[_Union[FsckUsage, _Mapping]]] = ..., restored_ns: _Optional[int] = ...) -> None: ...

class FsckName(_message.Message):
    __slots__ = ("inode", "parent", "name")
    INODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    inode: int
    parent: int
    name: bytes
    def __init__(self, inode: _Optional[int] = ..., parent: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class FsckSubject(_message.Message):
    __slots__ = ("key", "inode", "names", "queued", "loop", "end", "kept", "counted", "ctime_ns")
    KEY_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    CTIME_NS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    inode: int
    names: _containers.RepeatedCompositeFieldContainer[FsckName]
    queued: _containers.RepeatedScalarFieldContainer[bytes]
    loop: bool
    end: int
    kept: FsckUsage
    counted: FsckUsage
    ctime_ns: int
    def __init__(self, key: _Optional[bytes] = ..., inode: _Optional[int] = ..., names: _Optional[_Iterable[_Union[FsckName, _Mapping]]] = ..., queued: _Optional[_Iterable[bytes]] = ..., loop: bool = ..., end: _Optional[int] = ..., kept: _Optional[_Union[FsckUsage, _Mapping]] = ..., counted: _Optional[_Union[FsckUsage, _Mapping]] = ..., ctime_ns: _Optional[int] = ...) -> None: ...

class FsckRecheckRequest(_message.Message):
    __slots__ = ("mutation", "repair", "subjects")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    repair: bool
    subjects: _containers.RepeatedCompositeFieldContainer[FsckSubject]
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., repair: bool = ..., subjects: _Optional[_Iterable[_Union[FsckSubject, _Mapping]]] = ...) -> None: ...

class FsckFinding(_message.Message):
    __slots__ = ("kind", "inode", "parent", "name", "detail", "repaired", "subject")
    KIND_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    kind: FsckKind
    inode: int
    parent: int
    name: bytes
    detail: str
    repaired: bool
    subject: int
    def __init__(self, kind: _Optional[_Union[FsckKind, str]] = ..., inode: _Optional[int] = ..., parent: _Optional[int] = ..., name: _Optional[bytes] = ..., detail: _Optional[str] = ..., repaired: bool = ..., subject: _Optional[int] = ...) -> None: ...

class FsckRecheckReply(_message.Message):
    __slots__ = ("findings",)
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[FsckFinding]
    def __init__(self, findings: _Optional[_Iterable[_Union[FsckFinding, _Mapping]]] = ...) -> None: ...

class AccessRequest(_message.Message):
    __slots__ = ("place", "follow", "wanted", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    follow: bool
    wanted: int
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., wanted: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class MknodRequest(_message.Message):
    __slots__ = ("mutation", "place", "type", "mode", "rdev", "uid", "gid", "caller", "umask")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RDEV_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    type: InodeType
    mode: int
    rdev: int
    uid: int
    gid: int
    caller: Caller
    umask: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., type: _Optional[_Union[InodeType, str]] = ..., mode: _Optional[int] = ..., rdev: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ..., umask: _Optional[int] = ...) -> None: ...

class GetXattrRequest(_message.Message):
    __slots__ = ("place", "follow", "name", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    follow: bool
    name: bytes
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., name: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class GetXattrReply(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class ListXattrRequest(_message.Message):
    __slots__ = ("place", "follow", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    follow: bool
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListXattrReply(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, names: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SetXattrRequest(_message.Message):
    __slots__ = ("mutation", "place", "follow", "name", "value", "create", "replace", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    follow: bool
    name: bytes
    value: bytes
    create: bool
    replace: bool
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., name: _Optional[bytes] = ..., value: _Optional[bytes] = ..., create: bool = ..., replace: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class RemoveXattrRequest(_message.Message):
    __slots__ = ("mutation", "place", "follow", "name", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    follow: bool
    name: bytes
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., follow: bool = ..., name: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class SetTrashRequest(_message.Message):
    __slots__ = ("mutation", "place", "trash_s", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TRASH_S_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    trash_s: int
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., trash_s: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListTrashRequest(_message.Message):
    __slots__ = ("place", "after", "limit", "only", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    after: bytes
    limit: int
    only: bytes
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., after: _Optional[bytes] = ..., limit: _Optional[int] = ..., only: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class TrashItem(_message.Message):
    __slots__ = ("name", "path", "removed_ns", "uid", "left_s", "inode")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REMOVED_NS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    path: bytes
    removed_ns: int
    uid: int
    left_s: int
    inode: Inode
    def __init__(self, name: _Optional[bytes] = ..., path: _Optional[bytes] = ..., removed_ns: _Optional[int] = ..., uid: _Optional[int] = ..., left_s: _Optional[int] = ..., inode: _Optional[_Union[Inode, _Mapping]] = ...) -> None: ...

class ListTrashReply(_message.Message):
    __slots__ = ("items", "more", "next")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[TrashItem]
    more: bool
    next: bytes
    def __init__(self, items: _Optional[_Iterable[_Union[TrashItem, _Mapping]]] = ..., more: bool = ..., next: _Optional[bytes] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("tree", "uid", "limit_bytes", "limit_inodes", "used_bytes", "used_inodes", "path", "counting")
    TREE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_INODES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_INODES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    COUNTING_FIELD_NUMBER: _ClassVar[int]
    tree: int
    uid: int
    limit_bytes: int
    limit_inodes: int
    used_bytes: int
    used_inodes: int
    path: bytes
    counting: bool
    def __init__(self, tree: _Optional[int] = ..., uid: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., limit_inodes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., used_inodes: _Optional[int] = ..., path: _Optional[bytes] = ..., counting: bool = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("mutation", "place", "uid", "limit_bytes", "limit_inodes", "clear", "keep_bytes", "keep_inodes", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_INODES_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_INODES_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    place: Place
    uid: int
    limit_bytes: int
    limit_inodes: int
    clear: bool
    keep_bytes: bool
    keep_inodes: bool
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., uid: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., limit_inodes: _Optional[int] = ..., clear: bool = ..., keep_bytes: bool = ..., keep_inodes: bool = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ShowQuotaRequest(_message.Message):
    __slots__ = ("place", "uid", "caller")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    place: Place
    uid: int
    caller: Caller
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., uid: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class QuotaReply(_message.Message):
    __slots__ = ("quota",)
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    quota: Quota
    def __init__(self, quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("after", "caller")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    after: bytes
    caller: Caller
    def __init__(self, after: _Optional[bytes] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ListQuotasReply(_message.Message):
    __slots__ = ("quotas", "next")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    next: bytes
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., next: _Optional[bytes] = ...) -> None: ...

class StatisticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CallFigures(_message.Message):
    __slots__ = ("method", "calls", "names", "refused", "failed", "seconds")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    method: str
    calls: int
    names: int
    refused: int
    failed: int
    seconds: float
    def __init__(self, method: _Optional[str] = ..., calls: _Optional[int] = ..., names: _Optional[int] = ..., refused: _Optional[int] = ..., failed: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class StatisticsReply(_message.Message):
    __slots__ = ("uptime_ms", "calls", "transactions", "again", "names_per_s", "transactions_per_s", "again_per_s", "removals_waiting", "leases_ending", "charges_waiting", "quotas", "store_disk")
    class AgainEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    NAMES_PER_S_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_PER_S_FIELD_NUMBER: _ClassVar[int]
    AGAIN_PER_S_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_WAITING_FIELD_NUMBER: _ClassVar[int]
    LEASES_ENDING_FIELD_NUMBER: _ClassVar[int]
    CHARGES_WAITING_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    STORE_DISK_FIELD_NUMBER: _ClassVar[int]
    uptime_ms: int
    calls: _containers.RepeatedCompositeFieldContainer[CallFigures]
    transactions: int
    again: _containers.ScalarMap[str, int]
    names_per_s: float
    transactions_per_s: float
    again_per_s: float
    removals_waiting: int
    leases_ending: int
    charges_waiting: int
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    store_disk: _common_pb2.StoreDisk
    def __init__(self, uptime_ms: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[CallFigures, _Mapping]]] = ..., transactions: _Optional[int] = ..., again: _Optional[_Mapping[str, int]] = ..., names_per_s: _Optional[float] = ..., transactions_per_s: _Optional[float] = ..., again_per_s: _Optional[float] = ..., removals_waiting: _Optional[int] = ..., leases_ending: _Optional[int] = ..., charges_waiting: _Optional[int] = ..., quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., store_disk: _Optional[_Union[_common_pb2.StoreDisk, _Mapping]] = ...) -> None: ...

class FileLock(_message.Message):
    __slots__ = ("kind", "type", "owner", "start", "end", "pid")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    kind: LockKind
    type: LockType
    owner: int
    start: int
    end: int
    pid: int
    def __init__(self, kind: _Optional[_Union[LockKind, str]] = ..., type: _Optional[_Union[LockType, str]] = ..., owner: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class LockRequest(_message.Message):
    __slots__ = ("mutation", "inode", "lock", "wait", "end_wait")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    END_WAIT_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    inode: int
    lock: FileLock
    wait: bool
    end_wait: bool
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., inode: _Optional[int] = ..., lock: _Optional[_Union[FileLock, _Mapping]] = ..., wait: bool = ..., end_wait: bool = ...) -> None: ...

class LockReply(_message.Message):
    __slots__ = ("lease", "held", "blocked")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    lease: int
    held: int
    blocked: bool
    def __init__(self, lease: _Optional[int] = ..., held: _Optional[int] = ..., blocked: bool = ...) -> None: ...

class QueryLockRequest(_message.Message):
    __slots__ = ("client", "inode", "lock")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    client: bytes
    inode: int
    lock: FileLock
    def __init__(self, client: _Optional[bytes] = ..., inode: _Optional[int] = ..., lock: _Optional[_Union[FileLock, _Mapping]] = ...) -> None: ...

class QueryLockReply(_message.Message):
    __slots__ = ("conflict", "same_client")
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    SAME_CLIENT_FIELD_NUMBER: _ClassVar[int]
    conflict: FileLock
    same_client: bool
    def __init__(self, conflict: _Optional[_Union[FileLock, _Mapping]] = ..., same_client: bool = ...) -> None: ...

class ReserveRequest(_message.Message):
    __slots__ = ("mutation", "inode", "session", "length", "end", "caller")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    inode: int
    session: bytes
    length: int
    end: int
    caller: Caller
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., inode: _Optional[int] = ..., session: _Optional[bytes] = ..., length: _Optional[int] = ..., end: _Optional[int] = ..., caller: _Optional[_Union[Caller, _Mapping]] = ...) -> None: ...

class ReserveReply(_message.Message):
    __slots__ = ("offset", "inode")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    inode: Inode
    def __init__(self, offset: _Optional[int] = ..., inode: _Optional[_Union[Inode, _Mapping]] = ...) -> None: ...
