"""Make an inode without content: a FIFO, a socket, a device. As mknod(2) does, it makes empty files too."""

from threefs.errors import AlreadyExists, InvalidArgument, PermissionDenied
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import maker_of
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, check_vacant, new_inode, set_file_layout
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

_DEVICES = (pb.CHARACTER_DEVICE, pb.BLOCK_DEVICE)
_TYPES = (pb.FILE, pb.FIFO, pb.SOCKET, *_DEVICES)


async def mknod(context: Context, request: pb.MknodRequest) -> pb.InodeReply:
    permissions.check_mode(request.mode)
    maker = maker_of(request)
    if request.type not in _TYPES:
        raise InvalidArgument(f"mknod makes files, FIFOs, sockets and devices, not an inode of type {request.type}")

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        resolved = await resolve(ns, request.place, maker, follow=False)
        shown = paths.shown_place(request.place)
        if resolved.entry is not None:
            raise AlreadyExists(f"{shown} exists already")
        check_vacant(resolved, request.place)
        parent = await writable_parent(ns, resolved, maker)
        if request.type in _DEVICES and not maker.is_super:
            raise PermissionDenied(f"{shown}: only the super-user makes devices")
        inode = await new_inode(context, ns, parent, InodeSpec(request.type, maker, request.mode, request.umask))
        if request.type in _DEVICES:
            inode.rdev = request.rdev
        elif request.type == pb.FILE:
            set_file_layout(context, inode, pb.Layout(), parent)
        await ns.add(resolved.parent, resolved.name, inode)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.MKNOD, request.mutation, work, request.place)
