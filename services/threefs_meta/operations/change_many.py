"""Many changes of one client: as far as possible in one transaction, with one commit.

A change that fails takes back what it has written, and the others go on. If the transaction as a whole cannot be had
(it conflicts again and again, or is too large), its halves are tried, down to single changes. A change that must wait
for something, as chunks that have to be asked or changed first, is left to a call of its own.

Each transaction keeps its results in one record, under the identity of the first change in it. Whoever makes a change
reads the records of all identities of the request, so each is made once, however the request was divided before; and
one that was left out stays left out, for by now it may have been made under another identity.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from threefs.errors import (
    Conflict,
    InvalidArgument,
    MaybeCommitted,
    Retry,
    ThreefsError,
    Throttled,
    TooLarge,
    TooOld,
)
from threefs.kv import records, retry
from threefs.kv.port import Transaction
from threefs.rpc import methods
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Replay
from threefs_meta import keys, recalls
from threefs_meta.actors import Actor, actor_of
from threefs_meta.claims import Adder, Claimed
from threefs_meta.context import Context
from threefs_meta.known import Known
from threefs_meta.lookahead import look_ahead
from threefs_meta.mutations import BY_ITSELF, Outside
from threefs_meta.namespace import Namespace
from threefs_meta.operations.close import closing
from threefs_meta.operations.create import creation
from threefs_meta.operations.remove import removal
from threefs_meta.operations.rename import renaming
from threefs_meta.operations.sync import syncing

MOST_CHANGES = 256
_MOST_RECALLS = 16
#: For that long a transaction of several changes is tried before its halves are.
_TOGETHER_S = 0.2
_ALONE_S = 10.0
_MOST_MESSAGE_CHARS = 1024
_BREATH = 16  # changes between two chances for other calls

Reply = pb.CreateReply | pb.RemoveReply | pb.InodeReply
Work = Callable[[Namespace], Awaitable[Reply | Outside]]


async def change_many(context: Context, request: pb.ChangeManyRequest) -> pb.ChangeManyReply:
    count = len(request.changes)
    mutation = request.mutation
    if count > MOST_CHANGES:
        raise InvalidArgument(f"a call has at most {MOST_CHANGES} changes, not {count}")
    if len(mutation.client) != keys.CLIENT_BYTES or mutation.request + count >= 1 << 64:
        raise InvalidArgument(f"changes need the identity of their client in {keys.CLIENT_BYTES} bytes, and numbers")
    many = _Many(context, request)
    await many.settle(0, count)
    return pb.ChangeManyReply(results=many.results)


class _Many:
    def __init__(self, context: Context, request: pb.ChangeManyRequest) -> None:
        self._context = context
        self._client = request.mutation.client
        self._first = request.mutation.request
        self._actor = actor_of(request)
        self._changes = request.changes
        self._results: list[pb.Changed | None] = [None] * len(request.changes)

    @property
    def results(self) -> list[pb.Changed]:
        return [result for result in self._results if result is not None]

    async def settle(self, start: int, end: int) -> None:
        """Find or make the results of these changes."""
        if start == end:
            return
        try:
            await self._run(start, end, _TOGETHER_S if end - start > 1 else _ALONE_S)
        except (Conflict, TooOld, Throttled, MaybeCommitted, TooLarge) as error:
            if end - start == 1:
                if error.retry is not Retry.NEVER:
                    raise
                self._results[start] = _failed(error)
                return
            middle = (start + end) // 2
            await self.settle(start, middle)
            await self.settle(middle, end)

    async def _run(self, start: int, end: int, timeout_s: float) -> None:
        context = self._context
        for _ in range(_MOST_RECALLS):
            try:
                self._results[start:end] = await retry.run(
                    context.engine,
                    partial(self._attempt, start, end),
                    clock=context.clock,
                    random=context.random,
                    timeout_s=timeout_s,
                    replayable=True,
                )
                return
            except Claimed as claimed:  # the others wait too, mostly for some milliseconds
                found = claimed
            await asyncio.sleep(0)
            await recalls.wait(context, found)
        raise Conflict("others keep claiming the directory; try again")

    async def _attempt(self, start: int, end: int, tx: Transaction) -> list[pb.Changed | None]:
        results = await self._kept(tx)
        known = Known()
        adder = Adder(self._client, self._first)
        names = self._context.names(tx, known, adder)
        record = pb.ChangeManyReply()
        claimed: list[tuple[pb.CreateReply | pb.InodeReply, int, int]] = []
        if not self._context.engine.quick and end - start > 1:
            await look_ahead(names, self._actor, self._changes[start:end])
        for number in range(start, end):
            if results[number] is not None:
                continue
            tx.savepoint()
            adder.places = _expected(self._changes[number])
            done = await self._change(number, names)
            if isinstance(done, ThreefsError):
                results[number] = _failed(done)
            else:
                results[number] = made = _add_result(record, self._first + number, done)
                if names.claim or names.recalled:
                    reply = made.create if made.HasField("create") else made.file
                    claimed.append((reply, names.claim, names.recalled))
                    names.claim = names.recalled = 0
            if isinstance(done, ThreefsError | Outside):
                tx.rollback()
                known.step_failed()
                names = self._context.names(tx, known, adder)  # what the other one has counted is not so
            else:
                known.step_made()
            if number % _BREATH == _BREATH - 1 and number + 1 < end:
                await asyncio.sleep(0)
        for directory, now_ns in known.touched.items():
            names.set_times(directory, now_ns, now_ns)
        self._keep(tx, record)
        for reply, claim, recalled in claimed:  # told now, and never again
            reply.claim, reply.recalled = claim, recalled
        return results[start:end]

    async def _change(self, number: int, names: Namespace) -> Reply | Outside | ThreefsError:
        """Raises what is not of this change but of the whole transaction."""
        try:
            return await _work(self._context, self._changes[number], self._actor, self._client)(names)
        except (Conflict, TooOld, Throttled, MaybeCommitted):
            raise
        except ThreefsError as error:
            return error if error.retry is Retry.NEVER else BY_ITSELF  # it might succeed when it is tried again

    async def _kept(self, tx: Transaction) -> list[pb.Changed | None]:
        """Results of changes that were made before."""
        results: list[pb.Changed | None] = [None] * len(self._changes)
        first = self._first
        some = keys.replay(self._client, first), keys.replay(self._client, first + len(results))
        for key, value in await tx.get_range(*some):
            replay = records.decode(value, Replay, key)
            if replay.method != methods.CHANGE_MANY.number:
                raise InvalidArgument("the identity of this request was used for another method before")
            for result in pb.ChangeManyReply.FromString(replay.reply).results:
                if first <= result.request < first + len(results):
                    results[result.request - first] = result
        return results

    def _keep(self, tx: Transaction, record: pb.ChangeManyReply) -> None:
        if record.results:
            key = keys.replay(self._client, record.results[0].request)
            tick = self._context.ticks.stamp()
            replay = Replay(method=methods.CHANGE_MANY.number, tick=tick, reply=record.SerializeToString())
            tx.set(key, records.encode(replay))


def _work(context: Context, change: pb.Change, actor: Actor, client: bytes) -> Work:
    """Raises InvalidArgument."""
    kind = change.WhichOneof("kind")
    if kind == "create":
        return creation(context, change.create, actor, client)
    if kind == "remove":
        return removal(context, change.remove, actor)
    if kind == "rename":
        return renaming(context, change.rename, actor, among_others=True)
    if kind == "close":
        return closing(context, change.close, actor)
    if kind == "sync":
        return syncing(context, change.sync, actor)
    raise InvalidArgument("a change of no known kind")


def _expected(change: pb.Change) -> tuple[pb.Place, ...]:
    """Where the client expects a name to appear."""
    if change.WhichOneof("kind") == "rename":
        return change.rename.source, change.rename.destination
    return (change.create.place,)


def _add_result(record: pb.ChangeManyReply, request: int, done: Reply | Outside) -> pb.Changed:
    result = record.results.add(request=request)
    if isinstance(done, pb.CreateReply):
        result.create.CopyFrom(done)
    elif isinstance(done, pb.InodeReply):
        result.file.CopyFrom(done)
    elif isinstance(done, pb.RemoveReply):
        result.remove.CopyFrom(done)
    else:
        result.alone = True
    return result


def _failed(error: ThreefsError) -> pb.Changed:
    return pb.Changed(code=error.code, message=error.message[:_MOST_MESSAGE_CHARS])
