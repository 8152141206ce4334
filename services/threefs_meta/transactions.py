"""Transactions of the operations, and the replay records by which a repeated mutation gets its first result (I9).

The record is written in the transaction of the change itself, so either both exist or none. A mutation that failed has
changed nothing and leaves no record: a repeat is a new attempt. But if a repeat fails, the client stops, and an attempt
before it may still arrive, from a service that hung. So the failure of a repeat is recorded, and that attempt fails in
the same way. It is the same where the store did not say whether an attempt of this service was committed. While the
failure cannot be recorded, the outcome is unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from threefs.errors import (
    Conflict,
    Corrupt,
    InvalidArgument,
    MaybeCommitted,
    Retry,
    ThreefsError,
    TooOld,
    error_of,
)
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.kv.retry import Outcome
from threefs.rpc.methods import Method, Rep, Req
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Replay
from threefs_meta.context import Context
from threefs_meta.lease import delegation_recall
from threefs_meta.lease.delegation import Creator, DelegationHeld
from threefs_meta.store import keys
from threefs_meta.store.inode_numbers import TakenNumbers
from threefs_meta.store.namespace import Namespace

#: Rounds of work outside a transaction before the caller is told to try again later.
_MAX_ROUNDS = 16
_PAGE = 256
MAX_MESSAGE_CHARS = 1024  # of an error that is kept

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NeedsChunkIo:
    """A transaction that has changed nothing returns this if chunks must be asked or changed first."""

    run: Callable[[], Awaitable[None]]


async def _nothing() -> None:
    pass


#: A change of a batch returns this if it needs a call of its own.
RETRY_ALONE = NeedsChunkIo(_nothing)


async def run_mutation(
    context: Context,
    method: Method[Req, Rep],
    mutation: pb.Mutation,
    work: Callable[[Namespace], Awaitable[Rep | NeedsChunkIo]],
    *places: pb.Place,
) -> Rep:
    """Make a mutation once for its identity. Returns the reply of `work`, or the stored reply of the first attempt.

    `work` may run several times. If it returns NeedsChunkIo, that is done, and `work` runs again. `places` are where
    the client expects new names.
    """
    if len(mutation.client) != keys.CLIENT_BYTES:
        raise InvalidArgument(f"{method} needs the identity of its client in {keys.CLIENT_BYTES} bytes")
    key = keys.replay(mutation.client, mutation.request)

    outcome = Outcome(mutation.again)
    numbers = TakenNumbers(context.allocator, outcome)

    async def attempt(tx: Transaction) -> Rep | NeedsChunkIo:
        value = await tx.get(key)
        if value is not None:
            return _first_reply(method, records.decode(value, Replay, key))
        ns = context.namespace(tx, creator=Creator(mutation.client, mutation.request, places), numbers=numbers)
        with numbers:
            reply = await work(ns)
        if not isinstance(reply, NeedsChunkIo):
            replay = Replay(method=method.number, tick=ns.stamp, reply=reply.SerializeToString())
            tx.set(key, records.encode(replay))
            # Not stored: what a delegation is now is no answer to a later repeat.
            reply.MergeFromString(ns.take_delegation_reply())
        return reply

    try:
        return await run_with_chunk_io(context, attempt, outcome)
    except ThreefsError as error:
        if error.retry is not Retry.NEVER or not outcome.maybe_committed:
            outcome.check(error)
            raise
        first_reply = await context.transact(partial(_keep_failure, context, method, key, error), outcome=outcome)
        if first_reply is None:
            raise
        return first_reply


async def _keep_failure(
    context: Context, method: Method[Req, Rep], key: bytes, error: ThreefsError, tx: Transaction
) -> Rep | None:
    """Record that a repeat has failed. Returns the first reply if the attempt before it was made meanwhile."""
    value = await tx.get(key)
    if value is not None:
        return _first_reply(method, records.decode(value, Replay, key))
    tick = context.logical_clock.stamp()
    message = error.message[:MAX_MESSAGE_CHARS]
    tx.set(key, records.encode(Replay(method=method.number, tick=tick, code=error.code, message=message)))
    return None


async def run_with_chunk_io(
    context: Context, attempt: Callable[[Transaction], Awaitable[T | NeedsChunkIo]], outcome: Outcome | None = None
) -> T:
    """Run a transaction, in turns with the work that it needs to have done outside of it."""
    for _ in range(_MAX_ROUNDS):
        done: T | NeedsChunkIo
        try:
            done = await context.transact(attempt, outcome=outcome)
        except DelegationHeld as conflict:
            done = NeedsChunkIo(partial(delegation_recall.wait_returned, context, conflict))
        if not isinstance(done, NeedsChunkIo):
            return done
        await asyncio.sleep(0)  # after a wait this runs in a task, which calls of chunks need
        await done.run()
    raise Conflict("other clients keep changing the file or getting the delegation of the directory; try again")


async def run_readonly(context: Context, work: Callable[[Namespace], Awaitable[T]]) -> T:
    """Run a transaction that only reads. Its result is durable, also if it is an error."""
    return await context.transact(lambda tx: work(Namespace(tx)))


def _first_reply(method: Method[Req, Rep], replay: Replay) -> Rep:
    if replay.method != method.number:
        raise InvalidArgument(
            "the identity of this request was used for another method; give each request its own number"
        )
    if replay.code:
        raise error_of(replay.code, replay.message)
    return method.reply.FromString(replay.reply)


async def expire_replays(context: Context, cursor: bytes, before_tick: int) -> bytes:
    """Remove the replay records of a page, from `cursor` on, that are older than a tick. Returns the next cursor, or
    b"" at the end.

    The numbers of a client's requests rise, so no old record comes after its first young one.
    """
    tx = context.engine.begin()
    pairs = await tx.get_range(cursor or keys.REPLAYS[0], keys.REPLAYS[1], limit=_PAGE, snapshot=True)
    following = pairs[-1][0] + b"\0" if len(pairs) == _PAGE else b""
    for key, value in pairs:
        try:
            tick = records.decode(value, Replay, key).tick
        except Corrupt as error:
            context.damaged.pass_over(key, error, "the replay record of a mutation cannot be read")
            continue
        if tick >= before_tick:
            following = keys.after_client(key)
            break
        tx.clear(key)
    assert not following or following > cursor, "each page begins behind the one before"
    try:
        await tx.commit()
    except (Conflict, TooOld, MaybeCommitted):
        return cursor
    return following
