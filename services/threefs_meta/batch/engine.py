"""Many changes of one client: as far as possible in one transaction, with one commit.

A change that fails takes back what it has written, and the others go on. If the transaction as a whole cannot be had
(it conflicts again and again, or is too large), its halves are tried, down to single changes. A change that must wait
for something, as chunks that have to be asked or changed first, is left to a call of its own.

Each transaction keeps its results in one record, under the identity of the first change in it. Whoever makes a change
reads the records of all identities of the request, so each is made once, however the request was divided before; and
one that was left out stays left out, for by now it may have been made under another identity.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from threefs.kv.engine_api import Transaction
from threefs.rpc import methods
from threefs.rpc.preencoded import Serialized
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Replay
from threefs_meta.access.credentials import actor_of
from threefs_meta.batch import outcomes
from threefs_meta.batch.create import make_together
from threefs_meta.batch.prefetch_reads import look_ahead
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.context import Context
from threefs_meta.lease import delegation_recall
from threefs_meta.lease.delegation import Creator, DelegationHeld
from threefs_meta.ops.close import close_together, closing
from threefs_meta.ops.create import creation
from threefs_meta.ops.remove import removal, remove_together
from threefs_meta.ops.rename import renaming
from threefs_meta.ops.sync import syncing
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import RETRY_ALONE, NeedsChunkIo

MOST_CHANGES = 256
_MOST_RECALLS = 16
#: For that long a transaction of several changes is tried before its halves are.
_TOGETHER_S = 0.2
_ALONE_S = 10.0
_BREATH = 64  # changes between two chances for other calls

Reply = Serialized[pb.CreateReply] | pb.RemoveReply | pb.InodeReply
Work = Callable[[Namespace], Awaitable[Reply | NeedsChunkIo]]


async def change_many(context: Context, request: pb.BatchRequest) -> Serialized[pb.BatchReply]:
    count = len(request.changes)
    mutation = request.mutation
    if count > MOST_CHANGES:
        raise InvalidArgument(f"a call has at most {MOST_CHANGES} changes, not {count}")
    if len(mutation.client) != keys.CLIENT_BYTES or mutation.request + count >= 1 << 64:
        raise InvalidArgument(f"changes need the identity of their client in {keys.CLIENT_BYTES} bytes, and numbers")
    many = _Many(context, request)
    await many.settle(0, count)
    return Serialized(pb.BatchReply, many.results)


class _Many:
    """All changes of a request. Results are pieces as of `outcomes`; None: there is none yet."""

    def __init__(self, context: Context, request: pb.BatchRequest) -> None:
        self.context = context
        self.client = request.mutation.client
        self.first = request.mutation.request
        self.actor = actor_of(request)
        self.changes = list(request.changes)
        self.kinds = [change.WhichOneof("kind") for change in self.changes]
        self._results: list[bytes | None] = [None] * len(self.changes)

    @property
    def results(self) -> list[bytes]:
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
                self._results[start] = outcomes.failed(error)
                return
            middle = (start + end) // 2
            await self.settle(start, middle)
            await self.settle(middle, end)

    async def _run(self, start: int, end: int, timeout_s: float) -> None:
        context = self.context
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
            except DelegationHeld as claimed:  # the others wait too, mostly for some milliseconds
                found = claimed
            await asyncio.sleep(0)
            await delegation_recall.wait(context, found)
        raise Conflict("others keep claiming the directory; try again")

    async def _attempt(self, start: int, end: int, tx: Transaction) -> list[bytes | None]:
        attempt = _Attempt(self, tx, await self._kept(tx))
        if not self.context.engine.quick and end - start > 1:
            await look_ahead(attempt.names, self.actor, self.changes[start:end])
        for some in range(start, end, _BREATH):
            if some > start:
                await asyncio.sleep(0)
            await attempt.make(some, min(some + _BREATH, end))
        attempt.keep()
        return attempt.results[start:end]

    async def _kept(self, tx: Transaction) -> list[bytes | None]:
        """Results of changes that were made before."""
        results: list[bytes | None] = [None] * len(self.changes)
        first = self.first
        some = keys.replay(self.client, first), keys.replay(self.client, first + len(results))
        for key, value in await tx.get_range(*some):
            replay = records.decode(value, Replay, key)
            if replay.method != methods.BATCH.number:
                raise InvalidArgument("the identity of this request was used for another method before")
            for result in pb.BatchReply.FromString(replay.reply).results:
                if first <= result.request < first + len(results):
                    results[result.request - first] = outcomes.kept(result)
        return results


class _Attempt:
    """One transaction of some of the changes. Those that have results were made before."""

    def __init__(self, many: _Many, tx: Transaction, results: list[bytes | None]) -> None:
        self.results = results
        self._many = many
        self._tx = tx
        self._known = TxnMemo()
        self._adder = Creator(many.client, many.first)
        self._record: dict[int, bytes] = {}  # what is kept, by the identities
        self._one_by_one = 0  # up to this change
        self.names = self._fresh()

    def _fresh(self) -> Namespace:
        return self._many.context.names(self._tx, self._known, self._adder)

    async def make(self, start: int, end: int) -> None:
        number = start
        while number < end:
            number += await self._make_together(number, end)
            if number < end:
                await self._make_one(number)
                number += 1

    async def _make_together(self, start: int, end: int) -> int:
        """Changes of one kind next to each other, which many changes mostly are; how many were made."""
        if start < self._one_by_one or start + 1 == end:
            return 0
        self._tx.savepoint()
        try:
            made = await self._together(start, end)
        except ThreefsError:  # whoever makes that one by itself will meet it again
            self._take_back()
            self._one_by_one = end
            return 0
        for number, (reply, claim) in enumerate(made, start):
            self._made(number, reply.SerializeToString(), claim)
        self._known.step_made()
        return len(made)

    async def _together(self, start: int, end: int) -> Sequence[tuple[Reply, bytes]]:
        """With each reply what is told of claims."""
        context, actor = self._many.context, self._many.actor
        alike = self._alike(start, end)
        match self._many.kinds[start]:
            case "create":
                creates = (change.create for change in alike)
                return await make_together(context, self.names, creates, actor, self._adder)
            case "remove":
                return await remove_together(context, self.names, (change.remove for change in alike), actor)
            case "close":
                return await close_together(context, self.names, (change.close for change in alike), actor)
        return ()

    def _alike(self, start: int, end: int) -> Iterator[pb.Change]:
        """Those of one kind, which have no results."""
        kinds, changes = self._many.kinds, self._many.changes
        for number in range(start, end):
            if kinds[number] != kinds[start] or self.results[number] is not None:
                return
            yield changes[number]

    async def _make_one(self, number: int) -> None:
        if self.results[number] is not None:
            return
        self._tx.savepoint()
        self._adder.places = self._expected(number)
        done = await self._change(number)
        if not isinstance(done, ThreefsError | NeedsChunkIo):
            self._made(number, done.SerializeToString(), self.names.told())
            self._known.step_made()
            return
        if isinstance(done, ThreefsError):
            self.results[number] = outcomes.failed(done)
        else:
            identity = self._many.first + number
            self.results[number] = self._record[identity] = outcomes.left_alone(identity)
        self._take_back()

    def _made(self, number: int, reply: bytes, told: bytes) -> None:
        """`told`: what is said of claims now, and never again."""
        kind, identity = self._many.kinds[number], self._many.first + number
        assert kind is not None, "nothing is made of no kind"
        self.results[number] = self._record[identity] = outcomes.made(kind, identity, reply)
        if told:
            self.results[number] = outcomes.made(kind, identity, reply + told)

    def _take_back(self) -> None:
        """What the last step has written, and counted."""
        self._tx.rollback()
        self._known.step_failed()
        self.names = self._fresh()

    async def _change(self, number: int) -> Reply | NeedsChunkIo | ThreefsError:
        """Raises what is not of this change but of the whole transaction."""
        try:
            return await self._work(number)(self.names)
        except (Conflict, TooOld, Throttled, MaybeCommitted):
            raise
        except ThreefsError as error:
            return error if error.retry is Retry.NEVER else RETRY_ALONE  # it might succeed when it is tried again

    def _work(self, number: int) -> Work:
        """Raises InvalidArgument."""
        many = self._many
        context, actor, change = many.context, many.actor, many.changes[number]
        match many.kinds[number]:
            case "create":
                return creation(context, change.create, actor, many.client)
            case "remove":
                return removal(context, change.remove, actor)
            case "rename":
                return renaming(context, change.rename, actor, among_others=True)
            case "close":
                return closing(context, change.close, actor)
            case "sync":
                return syncing(context, change.sync, actor)
        raise InvalidArgument("a change of no known kind")

    def _expected(self, number: int) -> tuple[pb.Place, ...]:
        """Where the client expects a name to appear."""
        change = self._many.changes[number]
        if self._many.kinds[number] == "rename":
            return change.rename.source, change.rename.destination
        return (change.create.place,)

    def keep(self) -> None:
        """What is written once for all."""
        for directory, now_ns in self._known.touched.items():
            self.names.set_times(directory, now_ns, now_ns)
        if self._record:
            key = keys.replay(self._many.client, next(iter(self._record)))
            tick = self._many.context.ticks.stamp()
            reply = b"".join(self._record.values())
            self._tx.set(key, records.encode(Replay(method=methods.BATCH.number, tick=tick, reply=reply)))
