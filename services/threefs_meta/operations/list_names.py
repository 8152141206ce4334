"""A page of a directory as columns, unless the caller knows it already."""

from collections.abc import Iterable, Sequence

from threefs.errors import InvalidArgument, NotADirectory, NotFound
from threefs.wire import meta_pb2 as pb
from threefs_meta import bodies, columns, keys, paths, permissions
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace
from threefs_meta.operations.list import MOST_ENTRIES
from threefs_meta.permissions import READ, SEARCH

MOST_WITH_ATTRIBUTES = 256


async def list_names(context: Context, request: pb.ListNamesRequest) -> pb.ListNamesReply:
    if len(request.after) > paths.MAX_NAME_BYTES:
        raise InvalidArgument("the name to continue behind is longer than any name")
    limit = min(request.limit or MOST_ENTRIES, MOST_ENTRIES)
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.ListNamesReply:
        number = request.directory
        directory = await names.inode(number)
        if directory is None:
            raise NotFound(f"inode {number} does not exist")
        if directory.type != pb.DIRECTORY:
            raise NotADirectory(f"inode {number} is not a directory")
        permissions.check(directory, actor, READ, f"inode {number}")
        token = await names.token(number)
        if token and token == request.known:
            return pb.ListNamesReply(token=token, unchanged=True)
        pairs = await names.tx.get_range(*keys.entries(number, request.after), limit=limit + 1)
        reply = pb.ListNamesReply(token=token, more=len(pairs) > limit)
        if reply.more:
            del pairs[limit:]
        reply.names, reply.inodes, reply.types = columns.of_entries(pairs)
        few = not reply.more and len(pairs) <= min(request.attributes_up_to, MOST_WITH_ATTRIBUTES)
        if few and not request.after and permissions.permits(directory, actor, SEARCH):
            reply.attributes.extend(await _attributes(names, columns.numbers(reply.inodes), reply.types))
        return reply

    return await look(context, work)


async def _attributes(names: Namespace, inodes: Sequence[int], types: bytes) -> Iterable[bytes]:
    stored = await bodies.stored(names, inodes)
    for number, kind in zip(inodes, types, strict=True):
        if kind == pb.DIRECTORY:
            stored[number] = await bodies.shown(names, stored[number], keys.inode(number))
    return map(stored.__getitem__, inodes)
