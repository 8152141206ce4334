"""Make a symbolic link. Its target need not exist."""

from threefs.errors import AlreadyExists
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import maker_of
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, check_vacant, new_inode
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

_MODE = 0o777


async def symlink(context: Context, request: pb.SymlinkRequest) -> pb.InodeReply:
    paths.check_target(request.target)
    maker = maker_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        resolved = await resolve(ns, request.place, maker, follow=False)
        if resolved.entry is not None:
            raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
        check_vacant(resolved, request.place)
        parent = await writable_parent(ns, resolved, maker)
        inode = await new_inode(context, ns, parent, InodeSpec(pb.SYMLINK, maker, _MODE))
        inode.target = request.target
        inode.length = len(request.target)
        await ns.add(resolved.parent, resolved.name, inode)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.SYMLINK, request.mutation, work, request.place)
