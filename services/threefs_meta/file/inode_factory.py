"""Makes inodes and directories, and checks that their names can be new."""

import stat
from dataclasses import dataclass

from threefs.errors import InvalidArgument
from threefs.store_disk import check_growth
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import acls, permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, not_found
from threefs_meta.store.namespace import Namespace

_PARENTS_MODE = 0o755
_MAKER_ACCESS = 0o300  # the maker of directories must be able to write and search them


@dataclass(frozen=True, slots=True)
class InodeSpec:
    """The attributes that the maker of a new inode chooses."""

    kind: pb.InodeType
    maker: Credentials
    mode: int
    umask: int = 0


async def new_inode(
    context: Context, ns: Namespace, parent: pb.Inode, spec: InodeSpec, *, number: int = 0, for_removal: bool = False
) -> pb.Inode:
    """An inode that belongs to its maker; in a set-group-id directory its group is that of the directory. `number` is
    given if it was allocated before. Raises NoSpace if the store has room only for removals, and it is not for one."""
    if not for_removal:
        check_growth(context.engine)
    now_ns = context.clock.wall_ns()
    inherits = parent.HasField("default_acl") and spec.kind != pb.SYMLINK
    maker, mode, gid = spec.maker, spec.mode, spec.maker.gid
    if not inherits:
        mode &= ~spec.umask
    if parent.mode & stat.S_ISGID:
        gid = parent.gid
        if spec.kind == pb.DIRECTORY:
            mode |= stat.S_ISGID
        elif mode & stat.S_IXGRP and not maker.is_super and not maker.in_group(gid):
            mode &= ~stat.S_ISGID  # otherwise everybody could make programs that run as this group
    assert not mode & ~permissions.MAX_MODE, "the mode of a request was checked"
    inode = pb.Inode(
        inode=number or await ns.new_number(),
        type=spec.kind,
        mode=mode,
        uid=maker.uid,
        gid=gid,
        nlink=1,
        atime_ns=now_ns,
        mtime_ns=now_ns,
        ctime_ns=now_ns,
        birth_ns=now_ns,
    )
    if inherits:
        acls.inherit(inode, parent, mode)
    return inode


def parents_spec(maker: Credentials, umask: int) -> InodeSpec:
    """Of directories that are made because something below them is."""
    return InodeSpec(pb.DIRECTORY, maker, _PARENTS_MODE, umask & ~_MAKER_ACCESS)


async def add_directory(context: Context, ns: Namespace, resolved: Resolution, spec: InodeSpec) -> pb.Inode:
    """Make the directory that is missing at this place. It inherits its parent's layout."""
    parent = await writable_parent(ns, resolved, spec.maker)
    inode = await new_inode(context, ns, parent, spec)
    inode.parent = resolved.parent
    inode.name = resolved.name
    if parent.HasField("layout"):
        inode.layout.CopyFrom(parent.layout)
    await ns.add(resolved.parent, resolved.name, inode)
    return inode


async def add_parents(context: Context, ns: Namespace, resolved: Resolution, spec: InodeSpec) -> Resolution:
    """Make the directories that are missing above the last component. Returns the place of that component."""
    rest = resolved.rest
    while rest:
        made = await add_directory(context, ns, Resolution(resolved.parent, resolved.name, None), spec)
        resolved = Resolution(made.inode, rest[0], None)
        rest = rest[1:]
    return resolved


def check_vacant(resolved: Resolution, place: pb.Place) -> None:
    """Raise NotFound unless only the last component is missing."""
    if resolved.rest:
        raise not_found(place)


def check_new_name(resolved: Resolution, place: pb.Place) -> None:
    """Raise InvalidArgument for '/', '.', '..' and bare inodes."""
    if not resolved.name:
        raise InvalidArgument(f"{paths.shown_place(place)} does not name an entry")


def set_file_layout(context: Context, inode: pb.Inode, wanted: pb.Layout, directory: pb.Inode) -> None:
    inode.layout.CopyFrom(layout_policy.of_file(context.routing(), context.random, wanted, directory.layout))
    inode.chains_used = 1
