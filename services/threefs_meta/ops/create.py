"""Create a file, or open what is there.

The transaction reads the parent (so that its removal is a conflict) and the new entry, and writes neither the parent
nor anything else that two creates in one directory would share.
"""

from collections.abc import Awaitable, Callable

from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotADirectory
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, actor_of
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.access.permissions import check_open
from threefs_meta.batch.create import Reply, draft, maker_of, reply
from threefs_meta.context import Context
from threefs_meta.file.inode_factory import InodeSpec, add_parents
from threefs_meta.file.truncation import Truncation
from threefs_meta.lease import write_sessions
from threefs_meta.quota.accounting import inherit
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, find, not_found, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

_PARENTS_MODE = 0o755
_MAKER_ACCESS = 0o300  # the maker must be able to go on below


async def create(context: Context, request: pb.CreateRequest) -> pb.CreateReply:
    creates = create_transaction(context, request, actor_of(request), request.mutation.client)

    async def work(ns: Namespace) -> pb.CreateReply | NeedsChunkIo:
        made = await creates(ns)
        return made if isinstance(made, NeedsChunkIo) else made.parsed()

    return await run_mutation(context, methods.CREATE, request.mutation, work, request.place)


def create_transaction(
    context: Context, request: pb.CreateRequest, actor: Credentials, client: bytes
) -> Callable[[Namespace], Awaitable[Reply | NeedsChunkIo]]:
    """The transaction, for a client that may want a session. Raises InvalidArgument."""
    maker = maker_of(request, actor)
    truncation = Truncation(context, 0) if request.truncate else None

    async def work(ns: Namespace) -> Reply | NeedsChunkIo:
        if request.unnamed:
            inode, body = await _unnamed(context, ns, request, maker)
            return await reply(context, ns, request, inode, body, client, created=True)
        resolved = await resolve(ns, request.place, maker, follow=not request.exclusive)
        if resolved.entry is not None:
            existing = await _existing(ns, request, actor, resolved, truncation)
            if isinstance(existing, NeedsChunkIo):
                return existing
            return await reply(context, ns, request, existing, existing.SerializeToString(), client)
        if resolved.rest and not request.parents:
            raise not_found(request.place)
        if resolved.rest:
            above = InodeSpec(pb.DIRECTORY, maker, _PARENTS_MODE, request.umask & ~_MAKER_ACCESS)
            resolved = await add_parents(context, ns, resolved, above)
        inode = await draft(context, request, maker, await writable_parent(ns, resolved, maker))
        body = await ns.add(resolved.parent, resolved.name, inode)
        return await reply(context, ns, request, inode, body, client, created=True)

    return work


async def _unnamed(
    context: Context, ns: Namespace, request: pb.CreateRequest, maker: Credentials
) -> tuple[pb.Inode, bytes]:
    """In no directory, though it inherits from one as if it were."""
    shown = paths.shown_place(request.place)
    if not request.session:
        raise InvalidArgument("a file without a name is kept by the session that it is made with")
    _, directory = await find(ns, request.place, maker, follow=True)
    if directory.type != pb.DIRECTORY:
        raise NotADirectory(f"{shown} is not a directory")
    if not directory.nlink:
        raise not_found(request.place)
    permissions.check_parent(directory, maker, shown)
    inode = await draft(context, request, maker, directory)
    inode.nlink, inode.unnamed = 0, True
    inherit(inode, directory)
    return inode, ns.put_inode(inode)


async def _existing(
    ns: Namespace, request: pb.CreateRequest, actor: Credentials, resolved: Resolution, truncation: Truncation | None
) -> pb.Inode | NeedsChunkIo:
    assert resolved.entry is not None, "the caller has found it"
    if request.exclusive:
        raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
    if resolved.entry.type == pb.DIRECTORY:
        raise IsADirectory(f"{paths.shown_place(request.place)} is a directory")
    inode = await ns.require_inode(resolved.entry.inode)
    check_open(inode, actor, request, paths.shown_place(request.place))
    if truncation is not None:
        first = truncation.apply(ns, inode, await write_sessions.chains_used(ns, inode))
        if first is not None:
            return first
        permissions.drop_privileges_on_write(inode, actor)
        ns.put_inode(inode)
    return inode
