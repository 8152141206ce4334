"""Attributes of many paths, all as of one moment."""

import asyncio

from threefs.errors import InvalidArgument, Retry
from threefs.wire import meta_pb2 as pb
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.finder import Finder
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace

MOST_PLACES = 4096
_BREATH = 256  # places between two chances for other calls


async def batch_stat(context: Context, request: pb.BatchStatRequest) -> pb.BatchStatReply:
    if len(request.places) > MOST_PLACES:
        raise InvalidArgument(f"a batch has at most {MOST_PLACES} paths, not {len(request.places)}")
    actor = actor_of(request)

    async def work(names: Namespace) -> pb.BatchStatReply:
        reply = pb.BatchStatReply()
        finder = Finder(names, actor, follow=request.follow)
        for start in range(0, len(request.places), _BREATH):
            for found in await finder.find(request.places[start : start + _BREATH]):
                if isinstance(found, pb.Inode):
                    reply.results.add(inode=found)
                elif found.retry is not Retry.NEVER:
                    raise found
                else:
                    reply.results.add(code=found.code, message=found.message)
            await asyncio.sleep(0)
        return reply

    return await look(context, work)
