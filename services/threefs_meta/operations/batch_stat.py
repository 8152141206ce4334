"""Attributes of many paths, all as of one moment."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache

from threefs.errors import InvalidArgument, Retry
from threefs.rpc.serialized import Serialized, head
from threefs.wire import meta_pb2 as pb
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.finder import Finder, Found
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace

MOST_PLACES = 4096
_BREATH = 256  # places between two chances for other calls

#: Of BatchStatReply.results and of StatResult.inode, as protobuf writes them.
_RESULT_TAG, _INODE_TAG = b"\x0a", b"\x12"


async def batch_stat(context: Context, request: pb.BatchStatRequest) -> Serialized[pb.BatchStatReply]:
    places, wanted = request.places, list(request.paths)
    count = len(places) + len(wanted)
    if count > MOST_PLACES:
        raise InvalidArgument(f"a batch has at most {MOST_PLACES} paths, not {count}")
    actor = actor_of(request)

    async def work(names: Namespace) -> Serialized[pb.BatchStatReply]:
        pieces: list[bytes] = []
        finder = Finder(names, actor, follow=request.follow)
        for start in range(0, len(places), _BREATH):
            _put(pieces, await finder.find_places(places[start : start + _BREATH]))
            if count > _BREATH:
                await asyncio.sleep(0)
        for start in range(0, len(wanted), _BREATH):
            _put(pieces, await finder.find(request.base, wanted[start : start + _BREATH]))
            if count > _BREATH:
                await asyncio.sleep(0)
        return Serialized(pb.BatchStatReply, pieces)

    return await look(context, work)


def _put(pieces: list[bytes], results: Sequence[Found]) -> None:
    for found in results:
        if isinstance(found, bytes):
            pieces.append(_head(len(found)))
            pieces.append(found)
        elif found.retry is not Retry.NEVER:
            raise found
        else:
            reply = pb.BatchStatReply()
            reply.results.add(code=found.code, message=found.message)
            pieces.append(reply.SerializeToString())


@lru_cache(maxsize=1024)
def _head(inode_bytes: int) -> bytes:
    """What stands before an inode that is so long."""
    inner = head(_INODE_TAG, inode_bytes)
    return head(_RESULT_TAG, len(inner) + inode_bytes) + inner
