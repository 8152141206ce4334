"""Publish a precreated file (`ops/precreate.py`): it gets its name, owner, mode and length, and its session ends, in
one transaction.

The client has written the content before, so a reader that finds the name finds the whole file. Permissions, quotas,
the layout and the access list of the directory of the new file are looked at here.
"""

from collections.abc import Awaitable, Callable

from threefs.errors import AlreadyExists, InvalidArgument, IsADirectory, LayoutDiffers
from threefs.layout import chains_reached, from_wire
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import Credentials, actor_of, made_by
from threefs_meta.access.entry_permissions import check_removable, writable_parent
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.inode_factory import (
    InodeSpec,
    add_parents,
    check_new_name,
    check_vacant,
    new_inode,
    parents_spec,
)
from threefs_meta.file.length import check_length
from threefs_meta.lease import write_sessions
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import Resolution, resolve
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_mutation


async def publish(context: Context, request: pb.PublishRequest) -> pb.InodeReply:
    work = publish_transaction(context, request, actor_of(request), request.mutation.client)
    return await run_mutation(context, methods.PUBLISH, request.mutation, work, request.place)


def publish_transaction(
    context: Context, request: pb.PublishRequest, actor: Credentials, client: bytes
) -> Callable[[Namespace], Awaitable[pb.InodeReply]]:
    """The transaction of one publication by `client`. Raises InvalidArgument."""
    permissions.check_mode(request.mode)
    write_sessions.check_id(request.session)
    maker = made_by(actor, request)

    async def work(ns: Namespace) -> pb.InodeReply:
        precreated = await _precreated(ns, request, client)
        resolved = await resolve(ns, request.place, maker, follow=False)
        if resolved.entry is not None and not request.replace:  # before permissions: it may be written in place
            raise AlreadyExists(f"{paths.shown_place(request.place)} exists already")
        check_new_name(resolved, request.place)
        if resolved.rest and request.parents:
            resolved = await add_parents(context, ns, resolved, parents_spec(maker, request.umask))
        check_vacant(resolved, request.place)
        directory = await writable_parent(ns, resolved, maker)
        if not layout_policy.is_inherited(context.routing(), precreated.layout, directory.layout):
            raise LayoutDiffers(
                f"new files in the directory of {paths.shown_place(request.place)} get another layout than inode "
                f"{request.inode} has; precreate one for that directory"
            )
        spec = InodeSpec(pb.FILE, maker, request.mode, request.umask)
        inode = await new_inode(context, ns, directory, spec, number=request.inode)
        assert inode.inode == request.inode, "a published file keeps its number, under which its chunks are stored"
        inode.layout.CopyFrom(precreated.layout)
        check_length(inode, request.length)
        inode.change, inode.fence = precreated.change, precreated.fence
        inode.length = request.length
        inode.chains_used = chains_reached(from_wire(inode.layout), request.length)
        replaced = await _unlink_old(ns, request, resolved, actor, inode.birth_ns) if resolved.entry else None
        await ns.add(resolved.parent, resolved.name, inode, replaced)
        assert not inode.unnamed, "the end of its session frees only a file without a name (I10)"
        await write_sessions.end(ns, inode, request.session, inode.birth_ns)
        return pb.InodeReply(inode=inode, over_quota=context.quotas.is_over(inode))

    return work


async def _precreated(ns: Namespace, request: pb.PublishRequest, client: bytes) -> pb.Inode:
    """Raises SessionLost, and InvalidArgument for a file that was not precreated, or has been used since."""
    await write_sessions.require_leased(ns, request.inode, request.session, client, f"inode {request.inode}")
    inode = await ns.inode(request.inode)
    if inode is None:
        raise write_sessions.lost(request.inode)
    _check_unused(inode)
    return inode


def _check_unused(inode: pb.Inode) -> None:
    """Raises InvalidArgument."""
    is_used = inode.length or inode.truncate_version or inode.append_end or inode.xattr_bytes
    if not inode.unnamed or is_used:
        raise InvalidArgument(
            f"inode {inode.inode} has a name, or was changed by other calls than chunk writes: "
            "only a file that was just precreated can be published; for other files without a name use Link"
        )


async def _unlink_old(
    ns: Namespace, request: pb.PublishRequest, resolved: Resolution, actor: Credentials, now_ns: int
) -> pb.Inode:
    """Take the name from what has it. Raises IsADirectory, AccessDenied, PermissionDenied."""
    assert resolved.entry is not None, "the caller has found an entry"
    old = await ns.require_inode(resolved.entry.inode)
    await check_removable(ns, resolved, old, actor, request.place)
    if old.type == pb.DIRECTORY:
        raise IsADirectory(f"{paths.shown_place(request.place)} is a directory")
    ns.unlink(old, now_ns)
    ns.clear_entry(resolved.parent, resolved.name, old, now_ns)
    return old
