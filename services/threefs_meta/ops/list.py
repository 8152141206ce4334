"""A page of a directory's entries."""

import asyncio
import struct
from collections.abc import Sequence
from functools import lru_cache

from threefs.errors import InvalidArgument, NotADirectory
from threefs.rpc.preencoded import PreencodedReply, head
from threefs.wire import meta_pb2 as pb
from threefs_meta.access import permissions
from threefs_meta.access.credentials import actor_of
from threefs_meta.access.permissions import READ, SEARCH
from threefs_meta.context import Context
from threefs_meta.resolve import paths
from threefs_meta.resolve.resolver import find
from threefs_meta.store import keys, serialized_inodes
from threefs_meta.store.entry_codec import Entry
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly

MAX_ENTRIES = 4096
#: Symbolic links may make attributes large; the reply stays well under the limit of a frame.
_MAX_BYTES = 4 << 20
_YIELD_EVERY = 256  # entries between two chances for other calls

#: Tags of ListReply.entries and of the fields of Entry, as protobuf writes them.
_ENTRY_TAG, _NAME_TAG, _ATTRIBUTES_TAG, _INODE_TAG = b"\x0a", b"\x0a", b"\x22", 0x11
_INODE = struct.Struct("<BQ")
_MORE = pb.ListReply(more=True).SerializeToString()


async def list_entries(context: Context, request: pb.ListRequest) -> PreencodedReply[pb.ListReply]:
    if len(request.after) > paths.MAX_NAME_BYTES:
        raise InvalidArgument(
            f"a name to go on from has at most {paths.MAX_NAME_BYTES} bytes, not {len(request.after)}"
        )
    limit = min(request.limit or MAX_ENTRIES, MAX_ENTRIES)

    actor = actor_of(request)

    async def work(ns: Namespace) -> PreencodedReply[pb.ListReply]:
        _, directory = await find(ns, request.place, actor, follow=True)
        if directory.type != pb.DIRECTORY:
            raise NotADirectory(f"{paths.shown_place(request.place)} is not a directory")
        permissions.check(directory, actor, READ, paths.shown_place(request.place))
        found = await ns.entries(directory.inode, request.after, limit + 1)
        assert not found or found[0][0] > request.after, "each page begins behind the one before"
        more = len(found) > limit
        pieces: list[bytes] = []
        if request.attributes and permissions.permits(directory, actor, SEARCH):
            count = await _put_with_attributes(pieces, ns, found[:limit])
            more = more or count < len(found)
        else:
            for name, entry in found[:limit]:
                _put(pieces, name, entry, b"")
        if more:
            pieces.append(_MORE)
        return PreencodedReply(pb.ListReply, pieces)

    return await run_readonly(context, work)


async def _put_with_attributes(pieces: list[bytes], ns: Namespace, found: Sequence[tuple[bytes, Entry]]) -> int:
    """Returns for how many entries there was room."""
    stored = await serialized_inodes.read_many(ns, [entry.inode for _, entry in found])
    size = 0
    for count, (name, entry) in enumerate(found, 1):
        inode, kind = entry
        body = stored[inode]
        if kind == pb.DIRECTORY:
            body = await serialized_inodes.with_times(ns, body, keys.inode(inode))
        _put(pieces, name, entry, head(_ATTRIBUTES_TAG, len(body)) + body)
        size += len(body)
        if size > _MAX_BYTES:
            return count
        if count % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return len(found)


def _put(pieces: list[bytes], name: bytes, entry: Entry, attributes: bytes) -> None:
    inode, kind = entry
    start, kind_field = head(_NAME_TAG, len(name)), _kind(kind)
    length = len(start) + len(name) + _INODE.size + len(kind_field) + len(attributes)
    pieces += (head(_ENTRY_TAG, length), start, name, _INODE.pack(_INODE_TAG, inode), kind_field, attributes)


@lru_cache
def _kind(kind: pb.InodeType) -> bytes:
    return pb.Entry(type=kind).SerializeToString()
