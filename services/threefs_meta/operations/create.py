"""Create a file, or open what is there.

The transaction reads the parent (so that its removal is a conflict) and the new entry, and writes neither the parent
nor anything else that two creates in one directory would share.
"""

from collections.abc import Awaitable, Callable

from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta import paths, permissions
from threefs_meta.actors import Actor, actor_of, made_by
from threefs_meta.arguments import check_access, check_mode, check_session
from threefs_meta.charges import inherit
from threefs_meta.context import Context
from threefs_meta.lengths import Cut
from threefs_meta.making import Birth, add_parents, new_inode, parent_of, set_file_layout
from threefs_meta.mutations import Outside, mutate
from threefs_meta.namespace import Namespace
from threefs_meta.opening import check_open
from threefs_meta.walk import Spot, find, not_found, walk

_PARENTS_MODE = 0o755
_OWN_WAY = 0o300  # the maker must be able to go on below


async def create(context: Context, request: pb.CreateRequest) -> pb.CreateReply:
    work = creation(context, request, actor_of(request), request.mutation.client)
    return await mutate(context, methods.CREATE, request.mutation, work, request.place)


def creation(
    context: Context, request: pb.CreateRequest, actor: Actor, client: bytes
) -> Callable[[Namespace], Awaitable[pb.CreateReply | Outside]]:
    """The transaction, for a client that may want a session. Raises InvalidArgument."""
    check_mode(request.mode)
    check_session(request.session)
    check_access(request.access)
    maker = made_by(actor, request)
    cut = Cut(context, 0) if request.truncate else None

    async def work(names: Namespace) -> pb.CreateReply | Outside:
        if request.unnamed:
            inode = await _unnamed(context, names, request, maker)
            return await _reply(context, names, request, inode, client, created=True)
        spot = await walk(names, request.place, maker, follow=not request.exclusive)
        if spot.entry is not None:
            existing = await _existing(names, request, actor, spot, cut)
            if isinstance(existing, Outside):
                return existing
            return await _reply(context, names, request, existing, client)
        if spot.rest and not request.parents:
            raise not_found(request.place)
        if spot.rest:
            above = Birth(pb.DIRECTORY, maker, _PARENTS_MODE, request.umask & ~_OWN_WAY)
            spot = await add_parents(context, names, spot, above)
        inode = await _new(context, names, request, maker, spot)
        return await _reply(context, names, request, inode, client, created=True)

    return work


async def _new(context: Context, names: Namespace, request: pb.CreateRequest, maker: Actor, spot: Spot) -> pb.Inode:
    directory = await parent_of(names, spot, maker)
    inode = await new_inode(context, directory, Birth(pb.FILE, maker, request.mode, request.umask))
    set_file_layout(context, inode, request.layout, directory)
    await names.add(spot.parent, spot.name, inode)
    return inode


async def _unnamed(context: Context, names: Namespace, request: pb.CreateRequest, maker: Actor) -> pb.Inode:
    """In no directory, though it inherits from one as if it were."""
    shown = paths.shown_place(request.place)
    if not request.session:
        raise InvalidArgument("a file without a name is kept by the session that it is made with")
    _, directory = await find(names, request.place, maker, follow=True)
    if directory.type != pb.DIRECTORY:
        raise NotADirectory(f"{shown} is not a directory")
    if not directory.nlink:
        raise not_found(request.place)
    permissions.check_parent(directory, maker, shown)
    inode = await new_inode(context, directory, Birth(pb.FILE, maker, request.mode, request.umask))
    set_file_layout(context, inode, request.layout, directory)
    inode.nlink, inode.unnamed = 0, True
    inherit(inode, directory)
    names.put_inode(inode)
    return inode


async def _reply(
    context: Context,
    names: Namespace,
    request: pb.CreateRequest,
    inode: pb.Inode,
    client: bytes,
    *,
    created: bool = False,
) -> pb.CreateReply:
    """With the client's lease, if it wants a session."""
    reply = pb.CreateReply(inode=inode, created=created, over_quota=context.quotas.is_over(inode))
    if request.session:
        reply.lease = await names.open_session(inode.inode, request.session, client, context.clock.wall_ns())
    return reply


async def _existing(
    names: Namespace, request: pb.CreateRequest, actor: Actor, spot: Spot, cut: Cut | None
) -> pb.Inode | Outside:
    assert spot.entry is not None, "the caller has found it"
    if request.exclusive:
        raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
    if spot.entry.type == pb.DIRECTORY:
        raise IsADirectory(f"{paths.shown_place(request.place)} is a directory")
    inode = await names.named(spot.entry.inode)
    check_open(inode, actor, request, paths.shown_place(request.place))
    if cut is not None:
        first = cut.settle(inode, await names.chains_used(inode))
        if first is not None:
            return first
        permissions.written_by(inode, actor)
        names.put_inode(inode)
    return inode
