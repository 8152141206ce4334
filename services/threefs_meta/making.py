"""New inodes under new names."""

from threefs.errors import InvalidArgument
from threefs.wire import meta_pb2 as pb
from threefs_meta import layouts, paths
from threefs_meta.context import Context
from threefs_meta.namespace import Namespace
from threefs_meta.walk import Spot, not_found


async def new_inode(context: Context, kind: pb.InodeType, mode: int, uid: int, gid: int) -> pb.Inode:
    now_ns = context.clock.wall_ns()
    return pb.Inode(
        inode=await context.allocator.take(),
        type=kind,
        mode=mode,
        uid=uid,
        gid=gid,
        nlink=1,
        atime_ns=now_ns,
        mtime_ns=now_ns,
        ctime_ns=now_ns,
        birth_ns=now_ns,
    )


async def add_directory(
    context: Context, names: Namespace, spot: Spot, like: pb.MkdirRequest | pb.CreateRequest, mode: int
) -> pb.Inode:
    """Make the directory that is missing at `spot`, with owner of `like`. It inherits its parent's layout."""
    parent = await names.directory(spot.parent)  # read, so that a removal of the parent is a conflict; never written
    inode = await new_inode(context, pb.DIRECTORY, mode, like.uid, like.gid)
    inode.parent = spot.parent
    inode.name = spot.name
    if parent.HasField("layout"):
        inode.layout.CopyFrom(parent.layout)
    names.add(spot.parent, spot.name, inode)
    return inode


async def add_parents(
    context: Context, names: Namespace, spot: Spot, like: pb.MkdirRequest | pb.CreateRequest, mode: int
) -> Spot:
    """Make the directories that are missing above the last component; where that one belongs."""
    rest = spot.rest
    while rest:
        made = await add_directory(context, names, Spot(spot.parent, spot.name, None), like, mode)
        spot = Spot(made.inode, rest[0], None)
        rest = rest[1:]
    return spot


def vacant(spot: Spot, place: pb.Place) -> None:
    """Raise NotFound unless a new entry could be made right here."""
    if spot.rest:
        raise not_found(place)


def check_new_name(spot: Spot, place: pb.Place) -> None:
    """Raise InvalidArgument for '/', '.', '..' and bare inodes."""
    if not spot.name:
        raise InvalidArgument(f"{paths.shown_place(place)} does not name an entry")


def set_file_layout(context: Context, inode: pb.Inode, wanted: pb.Layout, directory: pb.Inode) -> None:
    inode.layout.CopyFrom(layouts.of_file(context.routing(), context.random, wanted, directory.layout))
    inode.chains_used = 1
