"""Attributes of many paths, all as of one moment."""

import asyncio

from threefs.errors import Conflict, InvalidArgument, ThreefsError, Throttled, TooOld
from threefs.wire import meta_pb2 as pb
from threefs_meta.actors import actor_of
from threefs_meta.context import Context
from threefs_meta.mutations import look
from threefs_meta.namespace import Namespace
from threefs_meta.walk import find

MOST_PLACES = 4096
_BREATH = 128  # places between two chances for other calls


async def batch_stat(context: Context, request: pb.BatchStatRequest) -> pb.BatchStatReply:
    if len(request.places) > MOST_PLACES:
        raise InvalidArgument(f"a batch has at most {MOST_PLACES} paths, not {len(request.places)}")

    actor = actor_of(request)

    async def work(names: Namespace) -> pb.BatchStatReply:
        reply = pb.BatchStatReply()
        for count, place in enumerate(request.places, 1):
            try:
                _, inode = await find(names, place, actor, follow=request.follow)
                reply.results.add(inode=await names.shown(inode))
            except (Conflict, TooOld, Throttled):
                raise
            except ThreefsError as error:
                reply.results.add(code=error.code)
            if count % _BREATH == 0:
                await asyncio.sleep(0)
        return reply

    return await look(context, work)
