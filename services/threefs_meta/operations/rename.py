"""Give an entry another place in the tree, atomically replacing what is there."""

from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotADirectory, NotFound
from threefs.ids import ROOT
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import paths
from threefs_meta.context import Context
from threefs_meta.making import check_new_name, vacant
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.operations.remove import remove_directory
from threefs_meta.walk import Spot, find, walk


async def rename(context: Context, request: pb.RenameRequest) -> pb.InodeReply:
    async def work(names: Namespace) -> pb.InodeReply | Outside:
        source, inode = await find(names, request.source, follow=False)
        target = await walk(names, request.destination, follow=False)
        check_new_name(source, request.source)
        check_new_name(target, request.destination)
        vacant(target, request.destination)
        await names.directory(target.parent)  # its removal is a conflict
        if inode.type == pb.DIRECTORY and source.parent != target.parent:
            await _check_no_loop(names, inode.inode, target.parent, request)
        if target.entry is not None:
            if request.no_replace:
                raise AlreadyExists(f"{paths.shown_place(request.destination)} exists already")
            if target.entry.inode == inode.inode:  # the same entry, or two names of one file: POSIX does nothing
                return pb.InodeReply(inode=await names.with_times(inode))
            await _replace(context, names, inode, target, request.destination)
        _move(context, names, inode, source, target)
        return pb.InodeReply(inode=await names.with_times(inode))

    return await mutate(context, methods.RENAME, request.mutation, work)


def _move(context: Context, names: Namespace, inode: pb.Inode, source: Spot, target: Spot) -> None:
    now_ns = context.clock.wall_ns()
    names.clear_entry(source.parent, source.name, now_ns)
    names.put_entry(target.parent, target.name, inode, now_ns)
    if inode.type == pb.DIRECTORY:  # a file's inode does not know its names
        inode.parent, inode.name = target.parent, target.name
    inode.ctime_ns = now_ns  # also tells a check of links that a name has moved while it was looking
    names.put_inode(inode)


async def _check_no_loop(names: Namespace, moved: int, into: int, request: pb.RenameRequest) -> None:
    """Every directory above the new place is read: another rename that moves one of them is a conflict."""
    at = into
    while at != ROOT:
        if at == moved:
            shown = paths.shown_place(request.source)
            raise InvalidArgument(f"{shown} cannot be moved below itself, to {paths.shown_place(request.destination)}")
        directory = await names.inode(at)
        if directory is None or not directory.nlink:
            raise NotFound(f"{paths.shown_place(request.destination)} lies in a directory that was removed")
        at = directory.parent


async def _replace(context: Context, names: Namespace, inode: pb.Inode, target: Spot, place: pb.Place) -> None:
    assert target.entry is not None, "the caller has found it"
    shown = paths.shown_place(place)
    old = await names.named(target.entry.inode)
    now_ns = context.clock.wall_ns()
    if inode.type == pb.DIRECTORY:
        if old.type != pb.DIRECTORY:
            raise NotADirectory(f"{shown} is not a directory")
        await remove_directory(names, old, shown, False, now_ns)
    elif old.type == pb.DIRECTORY:
        raise IsADirectory(f"{shown} is a directory")
    else:
        names.unlink(old, now_ns)
