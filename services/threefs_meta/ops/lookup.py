"""One name in a directory."""

from threefs.errors import AccessDenied, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import SEARCH, permits
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly


async def lookup(context: Context, request: pb.LookupRequest) -> pb.InodeReply:
    paths.check_name(request.name)

    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply:
        if not actor.is_super and not permits(await ns.directory(request.parent), actor, SEARCH):
            raise AccessDenied(f"user {actor.uid} may not search the directory inode {request.parent}")
        entry = await ns.entry(request.parent, request.name)
        if entry is None:
            raise await _absence(ns, request)
        inode = await ns.require_inode(entry.inode)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_readonly(context, work)


async def _absence(ns: Namespace, request: pb.LookupRequest) -> NotFound | NotADirectory:
    parent = await ns.read_shared(request.parent)
    if parent is not None and parent.type != pb.DIRECTORY:
        return NotADirectory(f"inode {request.parent} is not a directory")
    return NotFound(f"inode {request.parent} has no entry {paths.shown(request.name)}")
