"""A page of a directory's entries."""

import asyncio

from threefs.errors import Corrupt, InvalidArgument, NotADirectory
from threefs.kv import records
from threefs.wire import meta_pb2 as pb
from threefs_meta import keys, paths, permissions
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace
from threefs_meta.permissions import READ, SEARCH
from threefs_meta.walk import find

MOST_ENTRIES = 4096
#: Symbolic links may make attributes large; the reply stays well under the limit of a frame.
_MOST_BYTES = 4 << 20
_BREATH = 256  # entries between two chances for other calls


async def list_entries(context: Context, request: pb.ListRequest) -> pb.ListReply:
    if len(request.after) > paths.MAX_NAME_BYTES:
        raise InvalidArgument("the name to continue behind is longer than any name")
    limit = min(request.limit or MOST_ENTRIES, MOST_ENTRIES)

    actor = actor_of(request)

    async def work(names: Namespace) -> pb.ListReply:
        _, directory = await find(names, request.place, actor, follow=True)
        if directory.type != pb.DIRECTORY:
            raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory")
        permissions.check(directory, actor, READ, paths.shown_place(request.place))
        found = await names.entries(directory.inode, request.after, limit + 1)
        reply = pb.ListReply(more=len(found) > limit)
        for name, entry in found[:limit]:
            reply.entries.add(name=name, inode=entry.inode, type=entry.type)
        if request.attributes and permissions.permits(directory, actor, SEARCH):
            await _add_attributes(names, reply)
        return reply

    return await look(context, work)


async def _add_attributes(names: Namespace, reply: pb.ListReply) -> None:
    size = 0
    rows = [keys.inode(entry.inode) for entry in reply.entries]
    values = await names.tx.get_many(rows)
    for count, (entry, key, value) in enumerate(zip(reply.entries, rows, values, strict=True), 1):
        if value is None:
            raise Corrupt(f"an entry names inode {entry.inode}, which does not exist")
        inode = await names.shown(records.decode(value, pb.Inode, key))
        entry.attributes.CopyFrom(inode)
        size += len(value)
        if size > _MOST_BYTES and count < len(rows):
            del reply.entries[count:]
            reply.more = True
            return
        if count % _BREATH == 0:
            await asyncio.sleep(0)
