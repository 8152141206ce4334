"""Give a file another name, or its first one."""

from threefs.errors import AlreadyExists, PermissionDenied, TooManyLinks
from threefs.rpc import methods
from threefs.store_disk import check_growth
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import check_vacant
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find, not_found, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

MAX_LINKS = 65_000


async def link(context: Context, request: pb.LinkRequest) -> pb.InodeReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply | NeedsChunkIo:
        _, inode = await find(ns, request.source, actor, follow=False)
        if inode.type == pb.DIRECTORY:
            raise PermissionDenied(f"{paths.shown_place(request.source)} is a directory: a directory has only one name")
        if not inode.nlink and not inode.unnamed:
            raise not_found(request.source)
        if inode.nlink >= MAX_LINKS:
            raise TooManyLinks(
                f"{paths.shown_place(request.source)} has {MAX_LINKS} names, the most that a file may have"
            )
        resolved = await resolve(ns, request.destination, actor, follow=False)
        if resolved.entry is not None:
            raise AlreadyExists(f"{paths.shown_place(request.destination)} exists already")
        check_vacant(resolved, request.destination)
        directory = await writable_parent(ns, resolved, actor)
        check_growth(context.engine)
        if inode.unnamed:
            ns.link_unnamed(inode, directory)
        now_ns = context.clock.wall_ns()
        inode.nlink += 1
        assert not inode.unnamed, "a file with a name is not kept by its sessions alone (I10)"
        inode.ctime_ns = now_ns
        ns.put_inode(inode)
        await ns.put_entry(resolved.parent, resolved.name, inode, now_ns)
        return pb.InodeReply(inode=inode)

    return await run_mutation(context, methods.LINK, request.mutation, work, request.destination)
