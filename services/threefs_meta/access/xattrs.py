"""Extended attributes: their names, who may use them, and their limits.

"user." attributes are for users who may read or write the file, "trusted." for the super-user; "security." ones are
read by all and written by the super-user. The inode stores how many bytes its attributes take, so an inode without any
needs no look-up.
"""

import stat

from threefs.errors import (
    AccessDenied,
    NameTooLong,
    NoAttribute,
    NoSpace,
    NotSupported,
    PermissionDenied,
    ResultTooLong,
)
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import XattrRecord
from threefs_meta.access import acls, permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import READ, WRITE
from threefs_meta.resolve import paths
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

MAX_NAME_BYTES = 255
MAX_VALUE_BYTES = 64 << 10
#: Of one inode: names, values, and COST_BYTES for each. So all can be removed in one transaction.
MAX_TOTAL_BYTES = 128 << 10
COST_BYTES = 64

_ACLS = (acls.ACCESS, acls.DEFAULT)


def check_name(name: bytes) -> None:
    """Raises NameTooLong, NotSupported for an unknown prefix, InvalidArgument."""
    if len(name) > MAX_NAME_BYTES:
        raise NameTooLong(f"the name of an attribute has at most {MAX_NAME_BYTES} bytes, not {len(name)}")
    paths.check_bytes(name)
    prefix, _, rest = name.partition(b".")
    if name not in _ACLS and (prefix not in (b"user", b"trusted", b"security") or not rest):
        raise NotSupported(
            f"the name of an attribute begins with user., trusted. or security., not {paths.shown(name)!r}"
        )


def check_value(value: bytes) -> None:
    if len(value) > MAX_VALUE_BYTES:
        raise ResultTooLong(f"the value of an attribute has at most {MAX_VALUE_BYTES} bytes, not {len(value)}")


def check_read(inode: pb.Inode, actor: Credentials, name: bytes, shown: str) -> None:
    """Raises NoAttribute, AccessDenied."""
    if name.startswith(b"trusted.") and not actor.is_super:
        raise _absent(name, shown)
    if name.startswith(b"user."):
        if inode.type not in (pb.FILE, pb.DIRECTORY):
            raise _absent(name, shown)
        permissions.check(inode, actor, READ, shown)


def check_write(inode: pb.Inode, actor: Credentials, name: bytes, shown: str) -> None:
    """Raises PermissionDenied, AccessDenied, NotSupported."""
    if name in _ACLS:
        if inode.type == pb.SYMLINK:
            raise NotSupported(f"{shown} is a symbolic link, and has no access control list")
        if name == acls.DEFAULT and inode.type != pb.DIRECTORY:
            raise AccessDenied(f"{shown} is not a directory: only directories have default access control lists")
        permissions.check_owner(inode, actor, shown)
    elif not name.startswith(b"user."):
        if not actor.is_super:
            raise PermissionDenied(f"only the super-user sets the attribute {paths.shown(name)!r}")
    elif inode.type not in (pb.FILE, pb.DIRECTORY):
        raise PermissionDenied(f"{shown} is neither a file nor a directory, and has no user. attributes")
    else:
        if inode.type == pb.DIRECTORY and inode.mode & stat.S_ISVTX:
            permissions.check_owner(inode, actor, shown)
        permissions.check(inode, actor, WRITE, shown)


def is_visible(actor: Credentials, name: bytes) -> bool:
    return actor.is_super or not name.startswith(b"trusted.")


async def get(ns: Namespace, inode: pb.Inode, name: bytes) -> bytes | None:
    if name == acls.ACCESS:
        return acls.pack(acls.whole(inode)) if inode.HasField("access_acl") else None
    if name == acls.DEFAULT:
        return acls.pack(inode.default_acl) if inode.HasField("default_acl") else None
    if not inode.xattr_bytes:
        return None
    key = keys.xattr(inode.inode, name)
    value = await ns.tx.get(key)
    return None if value is None else records.decode(value, XattrRecord, key).value


async def names_of(ns: Namespace, inode: pb.Inode) -> list[bytes]:
    found = []
    if inode.xattr_bytes:
        found = [keys.xattr_of(key)[1] for key, _ in await ns.tx.get_range(*keys.xattrs(inode.inode))]
    if inode.HasField("access_acl"):
        found.append(acls.ACCESS)
    if inode.HasField("default_acl"):
        found.append(acls.DEFAULT)
    return found


def put(ns: Namespace, inode: pb.Inode, name: bytes, value: bytes, old: bytes | None, shown: str) -> None:
    """Set an attribute in place of `old`. Changes the inode as well, which the caller stores. `shown` is the file in
    the error. Raises NoSpace."""
    total = inode.xattr_bytes + _cost(name, value) - (0 if old is None else _cost(name, old))
    if total > MAX_TOTAL_BYTES and (old is None or len(value) > len(old)):
        raise NoSpace(f"the attributes of {shown} would take {total} bytes, more than {MAX_TOTAL_BYTES}; remove some")
    inode.xattr_bytes = total
    ns.tx.set(keys.xattr(inode.inode, name), records.encode(XattrRecord(value=value)))


def remove(ns: Namespace, inode: pb.Inode, name: bytes, old: bytes) -> None:
    assert inode.xattr_bytes >= _cost(name, old), "an inode counts all its attributes"
    inode.xattr_bytes -= _cost(name, old)
    ns.tx.clear(keys.xattr(inode.inode, name))


def _cost(name: bytes, value: bytes) -> int:
    return COST_BYTES + len(name) + len(value)


async def clear(ns: Namespace, inode: pb.Inode) -> None:
    """Remove all attributes of an inode that is being freed."""
    if inode.xattr_bytes:
        most = MAX_TOTAL_BYTES // COST_BYTES
        assert await ns.tx.clear_range(*keys.xattrs(inode.inode), max_keys=most), "the total of an inode is bounded"


def _absent(name: bytes, shown: str) -> NoAttribute:
    return NoAttribute(f"{shown} has no attribute {paths.shown(name)!r}")


def absent(name: bytes, place: pb.Place) -> NoAttribute:
    return _absent(name, paths.shown_place(place))
