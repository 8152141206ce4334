"""Make files without names ahead of time. A client fills them and publishes them (`ops/publish.py`), one by one.

Their write session keeps them. If it ends before a file was published, the collector frees the file with its chunks, as
any file without a name. So a client that dies anywhere leaves either the whole file or none, and no chunk without an
owner (I10).

The place of the request decides on their layout alone. Whether a file may be there is decided when it is published,
because an existing file needs no permission to write its directory, and one call makes files for several places.
"""

from threefs.errors import (
    AccessDenied,
    InvalidArgument,
    NameTooLong,
    NotADirectory,
    NotFound,
    TooManySymlinks,
)
from threefs.ids import ROOT
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.inode_factory import InodeSpec, new_inode, set_file_layout
from threefs_meta.lease import write_sessions
from threefs_meta.resolve.resolver import resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_mutation

#: A reply has all their inodes, and is stored for repeats.
MAX_FILES = 64

_NOT_CHOSEN = pb.Layout()


async def precreate(context: Context, request: pb.PrecreateRequest) -> pb.PrecreateReply:
    if not 0 < request.count <= MAX_FILES:
        raise InvalidArgument(f"a call makes 1 to {MAX_FILES} files ahead of time, not {request.count}")
    if not request.session:
        raise InvalidArgument("files without names need a write session, which keeps them; give one with the request")
    write_sessions.check_id(request.session)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.PrecreateReply:
        directory = await _directory(ns, request.place, actor)
        inode = await new_inode(context, ns, directory, InodeSpec(pb.FILE, actor, 0))
        set_file_layout(context, inode, _NOT_CHOSEN, directory)
        inode.nlink, inode.unnamed = 0, True
        now_ns, client = context.clock.wall_ns(), request.mutation.client
        reply = pb.PrecreateReply()
        for number in range(request.count):
            if number:  # the same inode, except for its number and its chains
                inode.inode = await ns.new_number()
                layout_policy.draw_placement(inode.layout, context.routing(), context.random)
                inode.change = 0
            ns.put_inode(inode)
            reply.inodes.append(inode)
            reply.lease = await write_sessions.begin(ns, inode.inode, request.session, client, now_ns)
        assert len(reply.inodes) == request.count, "the reply names every file that was made"
        return reply

    return await run_mutation(context, methods.PRECREATE, request.mutation, work)


async def _directory(ns: Namespace, place: pb.Place, actor: Credentials) -> pb.Inode:
    """The directory of a place, or the one above that exists. Where the path leads nowhere it is the root: the
    publication is refused then, with the reason."""
    try:
        resolved = await resolve(ns, place, actor, follow=False)
        return await ns.directory(resolved.parent)
    except (AccessDenied, InvalidArgument, NameTooLong, NotADirectory, NotFound, TooManySymlinks):
        return await ns.directory(ROOT)
