"""One name in a directory."""

from threefs.errors import NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb
from threefs_meta import paths
from threefs_meta.context import Context
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace


async def lookup(context: Context, request: pb.LookupRequest) -> pb.InodeReply:
    paths.check_name(request.name)

    async def work(names: Namespace) -> pb.InodeReply:
        entry = await names.entry(request.parent, request.name)
        if entry is None:
            raise await _absence(names, request)
        inode = await names.named(entry.inode)
        return pb.InodeReply(inode=await names.with_times(inode))

    return await look(context, work)


async def _absence(names: Namespace, request: pb.LookupRequest) -> NotFound | NotADirectory:
    parent = await names.inode(request.parent)
    if parent is not None and parent.type != pb.DIRECTORY:
        return NotADirectory(f"inode {request.parent} is not a directory")
    return NotFound(f"inode {request.parent} has no entry {paths.shown(request.name)}")
