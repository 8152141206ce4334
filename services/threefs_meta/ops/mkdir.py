"""Make a directory, on request with the missing directories above it."""

from threefs.errors import AlreadyExists
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import maker_of
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.inode_factory import InodeSpec, add_directory, add_parents
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import not_found, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

_MODE = 0o1777
_MAKER_ACCESS = 0o300  # the maker of directories must be able to write and search them


async def mkdir(context: Context, request: pb.MkdirRequest) -> pb.InodeReply:
    permissions.check_mode(request.mode)

    maker = maker_of(request)
    # The maker cannot choose set-user-id and set-group-id: the latter comes from the directory above.
    spec = InodeSpec(pb.DIRECTORY, maker, request.mode & _MODE, request.umask)
    above = InodeSpec(pb.DIRECTORY, maker, request.mode & _MODE | _MAKER_ACCESS, request.umask & ~_MAKER_ACCESS)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        # With `parents`, an existing directory or a symbolic link to one is no error.
        resolved = await resolve(ns, request.place, maker, follow=request.parents)
        if resolved.entry is not None:
            if not request.parents or resolved.entry.type != pb.DIRECTORY:
                raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
            return pb.InodeReply(inode=await ns.with_times(await ns.require_inode(resolved.entry.inode)))
        if resolved.rest and not request.parents:
            raise not_found(request.place)
        resolved = await add_parents(context, ns, resolved, above)
        inode = await add_directory(context, ns, resolved, spec)
        if request.HasField("layout"):
            inode.layout.CopyFrom(layout_policy.of_directory(context.routing(), request.layout, inode.layout))
            ns.put_inode(inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_mutation(context, methods.MKDIR, request.mutation, work, request.place)
