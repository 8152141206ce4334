"""POSIX access control lists: what they grant, how they follow the mode, and how new inodes get theirs.

The inode stores only the entries of an access list for which its mode has no room: the owning group, and users and
groups by name. The mode holds the rest: owner and others as without a list, and the mask as its group bits. So a chmod
changes the list without further work, and the mode alone never shows more than is granted.
"""

import struct

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials

ACCESS = b"system.posix_acl_access"
DEFAULT = b"system.posix_acl_default"

MAX_ENTRIES = 256
_VERSION = 2
_HEADER = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
_NO_ID = 0xFFFFFFFF
_NAMED = (pb.ACL_NAMED_USER, pb.ACL_NAMED_GROUP)
_SINGLE = (pb.ACL_OWNER, pb.ACL_GROUP, pb.ACL_OTHERS)


def parse(value: bytes) -> pb.Acl:
    """Read the form that programs use. Raises InvalidArgument unless it is a complete list."""
    if len(value) < _HEADER.size or (len(value) - _HEADER.size) % _ENTRY.size:
        raise InvalidArgument(
            f"an access control list has {_HEADER.size} bytes and {_ENTRY.size} for each entry, not {len(value)} bytes"
        )
    if _HEADER.unpack_from(value)[0] != _VERSION:
        raise InvalidArgument(f"an access control list has version {_VERSION}, not {_HEADER.unpack_from(value)[0]}")
    rows = list(_ENTRY.iter_unpack(value[_HEADER.size :]))
    if len(rows) > MAX_ENTRIES:
        raise InvalidArgument(f"an access control list has at most {MAX_ENTRIES} entries, not {len(rows)}")
    tags = set(pb.AclTag.values()) - {pb.ACL_TAG_UNSPECIFIED}
    acl = pb.Acl()
    for tag, permissions, identity in rows:
        if tag not in tags or permissions > 7:
            raise InvalidArgument(f"({tag}, {permissions}) is no entry of an access control list")
        acl.entries.add(tag=tag, permissions=permissions, id=identity if tag in _NAMED else 0)
    _check(acl)
    acl.entries.sort(key=lambda entry: (entry.tag, entry.id))
    return acl


def _check(acl: pb.Acl) -> None:
    seen = [(entry.tag, entry.id) for entry in acl.entries]
    if len(seen) != len(set(seen)):
        raise InvalidArgument("an access control list has an entry twice")
    tags = {entry.tag for entry in acl.entries}
    if not tags.issuperset(_SINGLE):
        raise InvalidArgument("an access control list needs entries for the owner, the group and others")
    if tags & set(_NAMED) and pb.ACL_MASK not in tags:
        raise InvalidArgument("an access control list with users or groups by name needs a mask")


def pack(acl: pb.Acl) -> bytes:
    """Write the form that programs use."""
    rows = [_ENTRY.pack(e.tag, e.permissions, e.id if e.tag in _NAMED else _NO_ID) for e in acl.entries]
    return _HEADER.pack(_VERSION) + b"".join(rows)


def whole(inode: pb.Inode) -> pb.Acl:
    """The access list of an inode, with the entries that its mode holds."""
    acl = pb.Acl(entries=inode.access_acl.entries)
    acl.entries.add(tag=pb.ACL_OWNER, permissions=inode.mode >> 6 & 7)
    acl.entries.add(tag=pb.ACL_MASK, permissions=inode.mode >> 3 & 7)
    acl.entries.add(tag=pb.ACL_OTHERS, permissions=inode.mode & 7)
    acl.entries.sort(key=lambda entry: (entry.tag, entry.id))
    return acl


def set_access(inode: pb.Inode, acl: pb.Acl) -> None:
    """Give an inode a complete access list. A list that a mode can express leaves only the mode."""
    singles = {entry.tag: entry.permissions for entry in acl.entries if entry.tag not in _NAMED}
    middle = singles.get(pb.ACL_MASK, singles[pb.ACL_GROUP])
    special = inode.mode & ~0o777
    inode.mode = special | singles[pb.ACL_OWNER] << 6 | middle << 3 | singles[pb.ACL_OTHERS]
    assert inode.mode & ~0o777 == special, "an access list changes permissions alone"
    inode.ClearField("access_acl")
    if pb.ACL_MASK in singles:
        kept = [entry for entry in acl.entries if entry.tag in (pb.ACL_GROUP, *_NAMED)]
        inode.access_acl.entries.extend(kept)


def inherit(inode: pb.Inode, parent: pb.Inode, mode: int) -> None:
    """Give a new inode the default list of its directory, limited by the mode that its maker asks for, without
    umask."""
    default = parent.default_acl
    narrowed = pb.Acl(entries=default.entries)
    middle = pb.ACL_MASK if any(entry.tag == pb.ACL_MASK for entry in default.entries) else pb.ACL_GROUP
    shifts = {pb.ACL_OWNER: 6, middle: 3, pb.ACL_OTHERS: 0}
    for entry in narrowed.entries:
        if entry.tag in shifts:
            entry.permissions &= mode >> shifts[entry.tag]
    set_access(inode, narrowed)
    assert not inode.mode & 0o777 & ~mode, "a new inode permits no more than its maker asks for"
    if inode.type == pb.DIRECTORY:
        inode.default_acl.CopyFrom(default)


def permits(inode: pb.Inode, actor: Credentials, wanted: int) -> bool:
    """Whether one entry that fits an actor who is not the owner grants all `wanted` bits."""
    assert actor.uid != inode.uid, "the mode alone judges the owner"
    mask = inode.mode >> 3 & 7
    member = False
    for entry in inode.access_acl.entries:
        if entry.tag == pb.ACL_NAMED_USER:
            if entry.id == actor.uid:
                return not wanted & ~(entry.permissions & mask)
            continue
        group = inode.gid if entry.tag == pb.ACL_GROUP else entry.id
        if actor.in_group(group):
            member = True
            if not wanted & ~(entry.permissions & mask):
                return True
    return not member and not wanted & ~(inode.mode & 7)
