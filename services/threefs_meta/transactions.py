"""Transactions of the operations, and the records that make a repeated mutation return its first result (I9).

The record is written in the transaction of the change itself, so either both exist or none does. A mutation that
failed has changed nothing and leaves no record: sent again, it is tried anew.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from threefs.errors import Conflict, Corrupt, InvalidArgument, MaybeCommitted, TooOld
from threefs.kv import records, retry
from threefs.kv.engine_api import Engine, Transaction
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Replay
from threefs_meta.context import Context
from threefs_meta.lease import delegation_recall
from threefs_meta.lease.delegation import Creator, DelegationHeld
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace

#: Rounds of work outside a transaction before the caller is told to come back later.
_MAX_ROUNDS = 16
_PAGE = 256

T = TypeVar("T")

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NeedsChunkIo:
    """What a transaction returns that changed nothing because chunks must be asked or changed first."""

    run: Callable[[], Awaitable[None]]


async def _nothing() -> None:
    pass


#: Of one among many changes: it is to be made by itself.
RETRY_ALONE = NeedsChunkIo(_nothing)


async def run_mutation(
    context: Context,
    method: Method[Req, Rep],
    mutation: pb.Mutation,
    work: Callable[[Namespace], Awaitable[Rep | NeedsChunkIo]],
    *places: pb.Place,
) -> Rep:
    """Run `work` in a transaction once for this identity; its reply, or the first one.

    `work` may be run several times. After it returned Outside, that is done and `work` is run again. `places` are those
    where the client expects a name.
    """
    if len(mutation.client) != keys.CLIENT_BYTES:
        raise InvalidArgument(f"{method} needs the identity of its client in {keys.CLIENT_BYTES} bytes")
    key = keys.replay(mutation.client, mutation.request)

    async def attempt(tx: Transaction) -> Rep | NeedsChunkIo:
        value = await tx.get(key)
        if value is not None:
            return _first_reply(method, records.decode(value, Replay, key))
        ns = context.namespace(tx, creator=Creator(mutation.client, mutation.request, places))
        reply = await work(ns)
        if not isinstance(reply, NeedsChunkIo):
            replay = Replay(method=method.number, tick=ns.stamp, reply=reply.SerializeToString())
            tx.set(key, records.encode(replay))
            # Not stored: what a delegation is now is no answer to a later repeat.
            reply.MergeFromString(ns.take_delegation_reply())
        return reply

    return await run_with_chunk_io(context, attempt)


async def run_with_chunk_io(context: Context, attempt: Callable[[Transaction], Awaitable[T | NeedsChunkIo]]) -> T:
    """Run a transaction, in turns with what it wants to be done outside."""
    for _ in range(_MAX_ROUNDS):
        outcome: T | NeedsChunkIo
        try:
            outcome = await retry.run(
                context.engine, attempt, clock=context.clock, random=context.random, replayable=True
            )
        except DelegationHeld as conflict:
            outcome = NeedsChunkIo(partial(delegation_recall.wait_returned, context, conflict))
        if not isinstance(outcome, NeedsChunkIo):
            return outcome
        await asyncio.sleep(0)  # who has waited is in a task, and those who ask chunks need to be in one
        await outcome.run()
    raise Conflict("others keep changing the file or claiming the directory; try again")


async def run_readonly(context: Context, work: Callable[[Namespace], Awaitable[T]]) -> T:
    """Run a transaction that only reads. What it returns or raises is durable."""

    return await retry.run(
        context.engine, lambda tx: work(Namespace(tx)), clock=context.clock, random=context.random, replayable=True
    )


def _first_reply(method: Method[Req, Rep], replay: Replay) -> Rep:
    if replay.method != method.number:
        raise InvalidArgument("the identity of this request was used for another method before")
    return method.reply.FromString(replay.reply)


async def expire_replays(engine: Engine, cursor: bytes, before_tick: int) -> bytes:
    """Remove a page of records from before that tick, from `cursor` on; where to go on, or b"" at the end.

    Requests of a client are numbered upwards, so behind its first young record it has none that is old.
    """
    tx = engine.begin()
    pairs = await tx.get_range(cursor or keys.REPLAYS[0], keys.REPLAYS[1], limit=_PAGE, snapshot=True)
    following = pairs[-1][0] + b"\0" if len(pairs) == _PAGE else b""
    for key, value in pairs:
        try:
            tick = records.decode(value, Replay, key).tick
        except Corrupt as error:  # it is left to `threefs fsck`, and must not hold up the others
            _LOG.error("the record of a mutation cannot be read", key=key.hex(), error=str(error))
            continue
        if tick >= before_tick:
            following = keys.after_client(key)
            break
        tx.clear(key)
    try:
        await tx.commit()
    except (Conflict, TooOld, MaybeCommitted):
        return cursor
    return following
