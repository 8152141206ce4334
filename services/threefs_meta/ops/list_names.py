"""A page of a directory's entries as columns, unless the caller has the present ones already."""

from collections.abc import Iterable, Sequence

from threefs.errors import InvalidArgument, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import READ, SEARCH
from threefs_meta.context import Context
from threefs_meta.ops.list import MAX_ENTRIES
from threefs_meta.resolve import paths
from threefs_meta.store import entry_codec, keys, serialized_inodes
from threefs_meta.store.entry_codec import EntryColumns
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

MAX_WITH_ATTRIBUTES = 256


async def list_names(context: Context, request: pb.ListNamesRequest) -> pb.ListNamesReply:
    if len(request.after) > paths.MAX_NAME_BYTES:
        raise InvalidArgument(
            f"a name to go on from has at most {paths.MAX_NAME_BYTES} bytes, not {len(request.after)}"
        )
    number, actor = request.directory, actor_of(request)
    most = 0 if request.after else min(request.attributes_up_to, MAX_WITH_ATTRIBUTES)

    async def work(ns: Namespace) -> pb.ListNamesReply:
        directory = await ns.inode(number)
        if directory is None:
            raise NotFound(f"inode {number} does not exist")
        if directory.type != pb.DIRECTORY:
            raise NotADirectory(f"inode {number} is not a directory")
        permissions.check(directory, actor, READ, f"inode {number}")
        token = await ns.directory_token(number)
        reply = pb.ListNamesReply(token=token, unchanged=token != 0 and token == request.known)
        if reply.unchanged and not most:
            return reply
        found, more = await _entries(context, ns, request, token)
        if not reply.unchanged:
            reply.names, reply.inodes, reply.types = found
            reply.more = more
        if not more and len(found.types) <= most and permissions.permits(directory, actor, SEARCH):
            reply.attributes.extend(await _attributes(ns, entry_codec.numbers(found.inodes), found.types))
            assert len(reply.attributes) == len(found.types), "each entry has its attributes"
        return reply

    return await run_readonly(context, work)


async def _entries(
    context: Context, ns: Namespace, request: pb.ListNamesRequest, token: int
) -> tuple[EntryColumns, bool]:
    """The entries of the page, and whether more follow."""
    number, limit = request.directory, min(request.limit or MAX_ENTRIES, MAX_ENTRIES)
    lasting = token != 0 and not request.after
    known = context.listing_cache.get(number, token) if lasting else None
    if known is not None and len(known.types) <= limit:
        return known, False
    pairs = await ns.tx.get_range(*keys.entries(number, request.after), limit=limit + 1)
    found, more = entry_codec.of_entries(pairs[:limit]), len(pairs) > limit
    assert len(found.types) <= limit, "a page has at most the entries that were asked for"
    if lasting and not more and len(pairs) <= MAX_WITH_ATTRIBUTES:
        context.listing_cache.put(number, token, found)
    return found, more


async def _attributes(ns: Namespace, inodes: Sequence[int], types: bytes) -> Iterable[bytes]:
    stored = await serialized_inodes.read_many(ns, inodes)
    for number, kind in zip(inodes, types, strict=True):
        if kind == pb.DIRECTORY:
            stored[number] = await serialized_inodes.with_times(ns, stored[number], keys.inode(number))
    return map(stored.__getitem__, inodes)
