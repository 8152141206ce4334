"""Attributes of what a path or a name in a directory means, of one or of many; and whether a user may access it."""

import asyncio
from collections.abc import Sequence

from threefs.errors import AccessDenied, InvalidArgument, NotADirectory, NotFound, Retry, ThreefsError
from threefs.rpc.preencoded import PreencodedReply, head
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import SEARCH, permits
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.batch_resolver import BatchResolver, Found
from threefs_meta.resolve.resolver import find
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

MAX_PLACES = 4096
_YIELD_EVERY = 1024  # places between two chances for other calls: some milliseconds

#: Tags of BatchStatReply.results, of StatResult.inode and of BatchStatReply.inodes, as protobuf writes them.
_RESULT_TAG, _RESULT_INODE_TAG, _INODE_TAG = b"\x0a", b"\x12", b"\x12"


async def stat(context: Context, request: pb.StatRequest) -> pb.InodeReply:
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_readonly(context, work)


async def lookup(context: Context, request: pb.LookupRequest) -> pb.InodeReply:
    """One name in a directory, which is given by its inode."""
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


async def access(context: Context, request: pb.AccessRequest) -> pb.InodeReply:
    """As access(2). Raises AccessDenied unless the user has the wanted access."""
    permissions.check_wanted(request.wanted)
    actor = actor_of(request)

    async def work(ns: Namespace) -> pb.InodeReply:
        _, inode = await find(ns, request.place, actor, follow=request.follow)
        permissions.check(inode, actor, request.wanted, paths.shown_place(request.place))
        return pb.InodeReply(inode=await ns.with_times(inode))

    return await run_readonly(context, work)


async def batch_stat(context: Context, request: pb.BatchStatRequest) -> PreencodedReply[pb.BatchStatReply]:
    """Many places and paths, all as of one moment."""
    places, wanted = request.places, list(request.paths)
    count = len(places) + len(wanted)
    if count > MAX_PLACES:
        raise InvalidArgument(f"a batch has at most {MAX_PLACES} paths, not {count}")
    actor = actor_of(request)

    async def work(ns: Namespace) -> PreencodedReply[pb.BatchStatReply]:
        pieces: list[bytes] = []
        resolver = BatchResolver(ns, actor, follow=request.follow)
        for start in range(0, len(places), _YIELD_EVERY):
            _put_results(pieces, await resolver.find_places(places[start : start + _YIELD_EVERY]))
            if count > _YIELD_EVERY:
                await asyncio.sleep(0)
        for start in range(0, len(wanted), _YIELD_EVERY):
            _put_inodes(pieces, start, await resolver.find(request.base, wanted[start : start + _YIELD_EVERY]))
            if count > _YIELD_EVERY:
                await asyncio.sleep(0)
        return PreencodedReply(pb.BatchStatReply, pieces)

    return await run_readonly(context, work)


def _put_results(pieces: list[bytes], results: Sequence[Found]) -> None:
    for found in results:
        if isinstance(found, bytes):
            inner = head(_RESULT_INODE_TAG, len(found))
            pieces += (head(_RESULT_TAG, len(inner) + len(found)), inner, found)
        else:
            reply = pb.BatchStatReply()
            reply.results.add(code=_require_permanent(found).code, message=found.message)
            pieces.append(reply.SerializeToString())


def _put_inodes(pieces: list[bytes], start: int, results: Sequence[Found]) -> None:
    """`start` is the number of the first path."""
    put = pieces.append
    for number, found in enumerate(results, start):
        if isinstance(found, bytes):
            put(head(_INODE_TAG, len(found)))
            put(found)
        else:
            reply = pb.BatchStatReply(inodes=(pb.Inode(),))
            reply.errors.add(number=number, code=_require_permanent(found).code, message=found.message)
            put(reply.SerializeToString())


def _require_permanent(error: ThreefsError) -> ThreefsError:
    """The error, if another attempt would get it again. Other errors concern the whole call, and are raised."""
    if error.retry is not Retry.NEVER:
        raise error
    return error
