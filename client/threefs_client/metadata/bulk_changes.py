"""Any number of changes, cut into batches that the meta service applies in few transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from threefs.errors import ProtocolError, ThreefsError, error_of
from threefs.wire import meta_pb2 as pb
from threefs_client.metadata.call_retry import MetaClient

#: A batch has at most this many changes, and about this many bytes.
MAX_CHANGES = 256
_MAX_BYTES = 1 << 20
_MAX_CALLS_IN_FLIGHT = 4

Outcome = pb.Changed | ThreefsError
Send = Callable[[pb.BatchRequest], Awaitable[pb.BatchReply]]
SendAlone = Callable[[pb.Change], Awaitable[pb.Changed]]


async def change_many(
    meta: MetaClient, send: Send, send_alone: SendAlone, changes: Sequence[pb.Change]
) -> list[Outcome]:
    """Apply the changes. Returns the result or the error of each.

    If a batch as a whole fails, all its changes have that error: not applied, or of unknown outcome.
    """
    outcomes: list[Outcome] = []
    turns = asyncio.Semaphore(_MAX_CALLS_IN_FLIGHT)

    async def apply(part: Sequence[pb.Change]) -> list[Outcome]:
        async with turns:
            request = pb.BatchRequest(mutation=meta.mutation(len(part)), changes=part)
            try:
                reply = await send(request)
            except ThreefsError as error:
                return [error] * len(part)
        if len(reply.results) != len(part):
            raise ProtocolError(f"the meta service gave {len(reply.results)} answers to {len(part)} changes")
        return [await outcome(change, result) for change, result in zip(part, reply.results, strict=True)]

    async def outcome(change: pb.Change, changed: pb.Changed) -> Outcome:
        if changed.retry_alone:
            try:
                return await send_alone(change)
            except ThreefsError as error:
                return error
        return error_of(changed.code, changed.message) if changed.code else changed

    # All batches end before this returns, also when one fails or this is cancelled: later calls must come after them.
    for found in await asyncio.gather(*(apply(part) for part in _parts(changes)), return_exceptions=True):
        if isinstance(found, BaseException):
            raise found
        outcomes += found
    return outcomes


def _parts(changes: Sequence[pb.Change]) -> Iterator[Sequence[pb.Change]]:
    start = size = 0
    for number, change in enumerate(changes):
        more = change.ByteSize()
        if number > start and (number - start == MAX_CHANGES or size + more > _MAX_BYTES):
            yield changes[start:number]
            start, size = number, 0
        size += more
    if start < len(changes):
        yield changes[start:]
