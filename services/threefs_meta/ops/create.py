"""Create files, one or many in one transaction, or open a file that exists.

The transaction reads the parent directory (so that its removal is a conflict) and the new entry. It writes neither the
parent nor anything else that two creates in one directory would share.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, NotADirectory, ThreefsError
from threefs.rpc import methods
from threefs.rpc.preencoded import PreencodedReply, head
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions, privileges
from threefs_meta.access.credentials import Credentials, actor_of, made_by
from threefs_meta.access.entry_permissions import writable_parent
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.inode_factory import InodeSpec, add_parents, new_inode, parents_spec, set_file_layout
from threefs_meta.file.truncation import Truncation
from threefs_meta.lease import write_sessions
from threefs_meta.quota.accounting import inherit
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, find, not_found, resolve
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo, run_mutation

#: Of CreateReply.inode, as protobuf writes it.
_INODE_TAG = b"\x0a"

Reply = PreencodedReply[pb.CreateReply]


class _NewFile(NamedTuple):
    """A file that is to be created in a directory that exists."""

    request: pb.CreateRequest
    maker: Credentials
    directory: pb.Inode
    parent: int  # the directory's number
    name: bytes

    def is_alike(self, other: "_NewFile") -> bool:
        """Whether both get the same inode, except for the number and the placement."""
        mine, its = self.request, other.request
        return (
            self.directory is other.directory
            and self.maker is other.maker
            and mine.mode == its.mode
            and mine.umask == its.umask
            and not mine.HasField("layout")
            and not its.HasField("layout")
        )


async def create(context: Context, request: pb.CreateRequest) -> pb.CreateReply:
    transaction = create_transaction(context, request, actor_of(request), request.mutation.client)

    async def work(ns: Namespace) -> pb.CreateReply | NeedsChunkIo:
        reply = await transaction(ns)
        return reply if isinstance(reply, NeedsChunkIo) else reply.parsed()

    return await run_mutation(context, methods.CREATE, request.mutation, work, request.place)


def create_transaction(
    context: Context, request: pb.CreateRequest, actor: Credentials, client: bytes
) -> Callable[[Namespace], Awaitable[Reply | NeedsChunkIo]]:
    """The transaction of one create. `client` gets the write session, if it asks for one. Raises InvalidArgument."""
    maker = _maker_of(request, actor)
    truncation = Truncation(context, 0) if request.truncate else None

    async def work(ns: Namespace) -> Reply | NeedsChunkIo:
        if request.unnamed:
            inode, body = await _create_unnamed(context, ns, request, maker)
            return await _reply(context, ns, request, inode, body, client, created=True)
        resolved = await resolve(ns, request.place, maker, follow=not request.exclusive)
        if resolved.entry is not None:
            existing = await _open_existing(context, ns, request, actor, resolved, truncation)
            if isinstance(existing, NeedsChunkIo):
                return existing
            return await _reply(context, ns, request, existing, existing.SerializeToString(), client)
        if resolved.rest and not request.parents:
            raise not_found(request.place)
        if resolved.rest:
            resolved = await add_parents(context, ns, resolved, parents_spec(maker, request.umask))
        parent = await writable_parent(ns, resolved, maker)
        [reply] = await _create_all(
            context, ns, [_NewFile(request, maker, parent, resolved.parent, resolved.name)], client
        )
        return reply

    return work


async def create_batch(
    context: Context, ns: Namespace, requests: Iterable[pb.CreateRequest], actor: Credentials, client: bytes
) -> list[tuple[Reply, bytes]]:
    """Create the first of these, as many as are new files in directories that exist. For each file: the reply, and
    its delegation fields, serialized.

    The result is the same as if each file were created alone. Raises any error that one of the creates would raise; the
    caller then rolls back.
    """
    files = await _plan(ns, requests, actor)
    replies = await _create_all(context, ns, files, client)
    delegations = ns.take_delegation_replies()
    return [(reply, delegations.get(file.parent, b"")) for reply, file in zip(replies, files, strict=True)]


async def _plan(ns: Namespace, requests: Iterable[pb.CreateRequest], actor: Credentials) -> Sequence[_NewFile]:
    """The first requests that are for such files. Writes nothing."""
    files: dict[bytes, _NewFile] = {}  # by the keys of the entries
    directories: dict[tuple[int, bytes], tuple[pb.Inode, int]] = {}  # those that paths were resolved to
    try:
        for request in requests:
            maker, place = _maker_of(request, actor), request.place
            above, _, name = place.path.rpartition(b"/")
            found = directories.get((place.base, above))
            if found is None or not paths.is_plain(name) or len(place.path) > paths.MAX_PATH_BYTES:
                # A link there may lead to a new name in another directory: that create is made alone.
                resolved = await resolve(ns, place, maker, follow=False)
                if resolved.entry is not None or resolved.rest:
                    break
                found = await writable_parent(ns, resolved, maker), resolved.parent
                if resolved.name == name:
                    directories[place.base, above] = found
                name = resolved.name
            row = keys.entry(found[1], name)
            if row in files or request.unnamed:
                break
            files[row] = _NewFile(request, maker, *found, name)
    except ThreefsError:
        pass  # this create meets the error again when it is tried alone
    stored = await ns.tx.get_many(list(files))
    return [file for file, _ in zip(files.values(), takewhile(_is_none, stored), strict=False)]


def _is_none(value: bytes | None) -> bool:
    return value is None


async def _create_all(context: Context, ns: Namespace, files: Sequence[_NewFile], client: bytes) -> list[Reply]:
    """Each step is done for all files before the next step: its code stays in the processor's caches, which makes many
    creates twice as fast."""
    inodes = await _draft_all(context, ns, files)
    bodies: list[bytes] = []
    for inode, file in zip(inodes, files, strict=True):
        if ns.creator is not None:
            ns.creator.places = (file.request.place,)
        bodies.append(await ns.add(file.parent, file.name, inode))
    return [
        await _reply(context, ns, file.request, inode, body, client, created=True)
        for inode, body, file in zip(inodes, bodies, files, strict=True)
    ]


async def _draft_all(context: Context, ns: Namespace, files: Iterable[_NewFile]) -> list[pb.Inode]:
    """The inodes. Most are alike, and a copy of an inode is three times as fast as a new one."""
    drafts: list[pb.Inode] = []
    like: _NewFile | None = None
    for file in files:
        if like is None or not file.is_alike(like):
            like = file
            drafts.append(await _draft(context, ns, file.request, file.maker, file.directory))
            continue
        inode = pb.Inode()
        inode.CopyFrom(drafts[-1])
        inode.inode = await ns.new_number()
        layout_policy.draw_placement(inode.layout, context.routing(), context.random)
        drafts.append(inode)
    return drafts


async def _draft(
    context: Context, ns: Namespace, request: pb.CreateRequest, maker: Credentials, directory: pb.Inode
) -> pb.Inode:
    """The inode of a new file. Raises InvalidArgument, Unavailable."""
    inode = await new_inode(context, ns, directory, InodeSpec(pb.FILE, maker, request.mode, request.umask))
    set_file_layout(context, inode, request.layout, directory)
    return inode


async def _create_unnamed(
    context: Context, ns: Namespace, request: pb.CreateRequest, maker: Credentials
) -> tuple[pb.Inode, bytes]:
    """A file without a name, which its write session keeps. It inherits from a directory as if it were in it."""
    shown = paths.shown_place(request.place)
    if not request.session:
        raise InvalidArgument("a file without a name needs a write session, which keeps it; give one with the request")
    _, directory = await find(ns, request.place, maker, follow=True)
    if directory.type != pb.DIRECTORY:
        raise NotADirectory(f"{shown} is not a directory")
    if not directory.nlink:
        raise not_found(request.place)
    permissions.check_parent(directory, maker, shown)
    inode = await _draft(context, ns, request, maker, directory)
    inode.nlink, inode.unnamed = 0, True
    inherit(inode, directory)
    return inode, ns.put_inode(inode)


async def _open_existing(
    context: Context,
    ns: Namespace,
    request: pb.CreateRequest,
    actor: Credentials,
    resolved: Resolution,
    truncation: Truncation | None,
) -> pb.Inode | NeedsChunkIo:
    assert resolved.entry is not None, "the caller has found an entry"
    if request.exclusive:
        raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
    if resolved.entry.type == pb.DIRECTORY:
        raise IsADirectory(f"{paths.shown_place(request.place)} is a directory")
    inode = await ns.require_inode(resolved.entry.inode)
    permissions.check_open(inode, actor, request, paths.shown_place(request.place))
    if truncation is not None:
        first = truncation.apply(ns, inode, await write_sessions.chains_used(context, ns, inode))
        if first is not None:
            return first
        await privileges.drop_on_write(ns, inode, actor)
        ns.put_inode(inode)
    return inode


def _maker_of(request: pb.CreateRequest, actor: Credentials) -> Credentials:
    """The owner of the new file. Raises InvalidArgument if the request cannot be."""
    permissions.check_mode(request.mode)
    write_sessions.check_id(request.session)
    permissions.check_wanted(request.access)
    return made_by(actor, request)


async def _reply(
    context: Context,
    ns: Namespace,
    request: pb.CreateRequest,
    inode: pb.Inode,
    body: bytes,
    client: bytes,
    *,
    created: bool = False,
) -> Reply:
    """Begins the write session that the request asks for. `body` is the inode, serialized."""
    lease = 0
    if request.session:
        lease = await write_sessions.begin(ns, inode.inode, request.session, client, context.clock.wall_ns())
    tail = _reply_tail(created, lease, context.quotas.is_over(inode))
    return PreencodedReply(pb.CreateReply, (head(_INODE_TAG, len(body)), body, tail))


@lru_cache(maxsize=256)
def _reply_tail(created: bool, lease: int, over_quota: bool) -> bytes:
    """The part of a reply beside the inode: the same for all files that a client creates under one lease."""
    return pb.CreateReply(created=created, lease=lease, over_quota=over_quota).SerializeToString()
