"""The permission to add, remove and move entries of a directory. Each check reads the directory within the
transaction, so that its removal and a change of its permissions are conflicts."""

from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials
from threefs_meta.access.permissions import SEARCH, WRITE
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution
from threefs_meta.store.namespace import Namespace


async def writable_parent(ns: Namespace, resolved: Resolution, actor: Credentials) -> pb.Inode:
    """The directory that is to get an entry. It is read but never written, so two creates in it do not conflict.

    Raises AccessDenied, and NotFound when the directory has been removed.
    """
    parent = await ns.directory(resolved.parent)
    await _check_writable(ns, resolved.parent, parent, actor)
    return parent


async def check_removable(
    ns: Namespace, resolved: Resolution, inode: pb.Inode, actor: Credentials, place: pb.Place
) -> None:
    """Raise AccessDenied or PermissionDenied unless the actor may take this name of the inode away."""
    if not actor.is_super:
        parent = await ns.directory(resolved.parent)
        await _check_writable(ns, resolved.parent, parent, actor)
        permissions.check_sticky(parent, inode, actor, paths.shown_place(place))


async def check_movable(
    ns: Namespace, source: Resolution, inode: pb.Inode, target: Resolution, actor: Credentials, place: pb.Place
) -> None:
    """Raise AccessDenied or PermissionDenied unless the actor may move the inode to the directory of `target`."""
    await check_removable(ns, source, inode, actor, place)
    check_new_parent(inode, source.parent, target.parent, actor, place)


def check_new_parent(inode: pb.Inode, old: int, new: int, actor: Credentials, place: pb.Place) -> None:
    """A directory that gets another parent is written too: the meaning of its '..' changes. Raises AccessDenied."""
    if inode.type == pb.DIRECTORY and old != new:
        permissions.check(inode, actor, WRITE, paths.shown_place(place))


async def _check_writable(ns: Namespace, number: int, directory: pb.Inode, actor: Credentials) -> None:
    """The path of the directory is looked up only for the error, AccessDenied."""
    if not permissions.permits(directory, actor, WRITE | SEARCH):
        permissions.check_parent(directory, actor, await paths.shown_directory(ns.tx, number))
