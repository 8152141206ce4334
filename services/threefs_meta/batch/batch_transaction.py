"""Many changes of one client, if possible in one transaction with one commit.

A change that fails is rolled back, and the others go on. If the transaction as a whole does not commit (it conflicts
again and again, or is too large), its halves are tried, down to single changes. A change that must wait, for example
for chunks that have to be asked or changed first, is left to a call of its own.

Each transaction stores its results in one record, under the identity of its first change. Every transaction reads the
records of all identities of the request, so each change is made once, however an earlier attempt divided the request. A
change that was left to a call of its own stays so, because by now that call may have made it under another identity.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from threefs.errors import (
    Conflict,
    InvalidArgument,
    MaybeCommitted,
    NoSpace,
    Retry,
    ThreefsError,
    Throttled,
    TooLarge,
    TooOld,
    Unavailable,
)
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.kv.retry import Outcome
from threefs.rpc import methods
from threefs.rpc.preencoded import PreencodedReply, head
from threefs.rpc.preencoded import number as number_field
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Replay
from threefs_meta.access.credentials import actor_of
from threefs_meta.batch.prefetch_reads import prefetch
from threefs_meta.batch.txn_memo import TxnMemo
from threefs_meta.context import Context
from threefs_meta.lease import delegation_recall
from threefs_meta.lease.delegation import Creator, DelegationHeld
from threefs_meta.ops.close import close_batch, close_transaction
from threefs_meta.ops.create import create_batch, create_transaction
from threefs_meta.ops.publish import publish_transaction
from threefs_meta.ops.remove import remove_batch, remove_transaction
from threefs_meta.ops.rename import rename_transaction
from threefs_meta.ops.sync import sync_transaction
from threefs_meta.store import keys
from threefs_meta.store.inode_numbers import OutOfNumbers, TakenNumbers
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import MAX_MESSAGE_CHARS, RETRY_ALONE, NeedsChunkIo

MAX_CHANGES = 256
_MAX_RECALLS = 16
#: A transaction of several changes is tried for so long before its halves are tried.
_BATCH_TIMEOUT_S = 0.2
_SINGLE_TIMEOUT_S = 10.0
_YIELD_EVERY = 64  # changes between two chances for other calls
#: Tags of BatchReply.results and of Changed.request, then of the reply in Changed, as protobuf writes them.
_RESULT_TAG, _REQUEST_TAG = b"\x0a", b"\x20"
_FILE_TAG = b"\x32"
_REPLY_TAGS = {"create": b"\x1a", "remove": b"\x3a"} | dict.fromkeys(("rename", "close", "sync", "publish"), _FILE_TAG)

Reply = PreencodedReply[pb.CreateReply] | pb.RemoveReply | pb.InodeReply
Work = Callable[[Namespace], Awaitable[Reply | NeedsChunkIo]]


async def run_batch(context: Context, request: pb.BatchRequest) -> PreencodedReply[pb.BatchReply]:
    count = len(request.changes)
    mutation = request.mutation
    if count > MAX_CHANGES:
        raise InvalidArgument(f"a batch has at most {MAX_CHANGES} changes, not {count}")
    if len(mutation.client) != keys.CLIENT_BYTES or mutation.request + count >= 1 << 64:
        raise InvalidArgument(
            f"a batch needs the identity of its client in {keys.CLIENT_BYTES} bytes, and {count} request numbers"
        )
    batch = _Batch(context, request)
    if count:
        try:
            await batch.run(0, count, Outcome(mutation.again))
        except ThreefsError as error:
            Outcome(maybe_committed=bool(batch.results)).check(error)  # some changes were made
            raise
    assert len(batch.results) == count, "every change has a result"
    return PreencodedReply(pb.BatchReply, batch.results)


class _Batch:
    """All changes of a request. A result is a piece of a BatchReply, serialized; None means that there is none yet."""

    def __init__(self, context: Context, request: pb.BatchRequest) -> None:
        self.context = context
        self.client = request.mutation.client
        self.first = request.mutation.request
        self.actor = actor_of(request)
        self.changes = list(request.changes)
        self.kinds = [change.WhichOneof("kind") for change in self.changes]
        self._results: list[bytes | None] = [None] * len(self.changes)
        self.waits_for_numbers = True  # of inodes; else changes that need some are left to calls of their own

    @property
    def results(self) -> list[bytes]:
        return [result for result in self._results if result is not None]

    async def run(self, start: int, end: int, outcome: Outcome) -> None:
        """Find or make the results of these changes."""
        if start == end:
            return
        try:
            await self._run_transaction(start, end, _BATCH_TIMEOUT_S if end - start > 1 else _SINGLE_TIMEOUT_S, outcome)
        except (Conflict, TooOld, Throttled, MaybeCommitted, TooLarge) as error:
            if end - start == 1 or isinstance(error.__cause__, NoSpace | Unavailable):  # no half fares better
                if error.retry is not Retry.NEVER:
                    outcome.check(error)
                    raise
                self._results[start] = failed_result(error)
                return
            middle = (start + end) // 2
            assert start < middle < end, "each half of a batch is smaller than the batch"
            await self.run(start, middle, replace(outcome))
            await self.run(middle, end, replace(outcome))
        except ThreefsError as error:
            if error.retry is not Retry.NEVER or end - start == len(self.changes):
                raise
            assert not any(self._results[start:end]), "no change of this part was made, but others may have been"
            self._results[start:end] = [failed_result(error)] * (end - start)

    async def _run_transaction(self, start: int, end: int, timeout_s: float, outcome: Outcome) -> None:
        context = self.context
        creates = self.kinds[start:end].count("create")  # removals and publications may need some numbers as well
        if self.waits_for_numbers:
            await self._refill(creates)
        numbers = TakenNumbers(context.allocator, outcome)
        for _ in range(_MAX_RECALLS):
            try:
                self._results[start:end] = await context.transact(
                    partial(self._attempt, start, end, outcome, numbers),
                    timeout_s=timeout_s,
                    refill=lambda least: self._refill(max(least, creates)),
                    outcome=outcome,
                )
                return
            except Conflict:
                numbers.end_attempt()  # after any other error of a commit they are not given out again
                raise
            except DelegationHeld as error:  # all changes wait, mostly for some milliseconds
                conflict = error
            await asyncio.sleep(0)
            await delegation_recall.wait_returned(context, conflict)
        raise Conflict("other clients keep getting the delegation of the directory; try again")

    async def _refill(self, least: int) -> None:
        """Have so many inode numbers. While none can be got, the changes that need none go on."""
        try:
            await self.context.allocator.refill(least)
        except ThreefsError:
            self.waits_for_numbers = False

    async def _attempt(
        self, start: int, end: int, outcome: Outcome, numbers: TakenNumbers, tx: Transaction
    ) -> list[bytes | None]:
        transaction = _BatchTransaction(self, tx, await self._replayed(tx), outcome, numbers)
        if not self.context.engine.is_embedded and end - start > 1:
            await prefetch(transaction.ns, self.actor, self.changes[start:end])
        with numbers:
            for batch_start in range(start, end, _YIELD_EVERY):
                if batch_start > start:
                    await asyncio.sleep(0)
                await transaction.run(batch_start, min(batch_start + _YIELD_EVERY, end))
            transaction.store_results()
        return transaction.results[start:end]

    async def _replayed(self, tx: Transaction) -> list[bytes | None]:
        """The results of changes that an earlier attempt has made."""
        results: list[bytes | None] = [None] * len(self.changes)
        first = self.first
        begin, end = keys.replay(self.client, first), keys.replay(self.client, first + len(results))
        for key, value in await tx.get_range(begin, end):
            replay = records.decode(value, Replay, key)
            if replay.method != methods.BATCH.number:
                raise InvalidArgument("the identity of this request was used for another method before")
            for result in pb.BatchReply.FromString(replay.reply).results:
                if first <= result.request < first + len(results):
                    results[result.request - first] = serialized_result(result)
        return results


class _BatchTransaction:
    """One transaction of some of the changes. Changes that have results already were made by an earlier attempt."""

    def __init__(
        self, batch: _Batch, tx: Transaction, results: list[bytes | None], outcome: Outcome, numbers: TakenNumbers
    ) -> None:
        self.results = results
        self._outcome = outcome
        self._numbers = numbers
        self._batch = batch
        self._tx = tx
        self._memo = TxnMemo()
        self._creator = Creator(batch.client, batch.first)
        self._stored_results: dict[int, bytes] = {}  # results that a repeat must get, by identity
        self._singly_until = 0  # changes before this one are made one by one, because one of them fails
        self.ns = self._new_namespace()

    def _new_namespace(self) -> Namespace:
        return self._batch.context.namespace(self._tx, self._memo, self._creator, self._numbers)

    async def run(self, start: int, end: int) -> None:
        number = start
        while number < end:
            number += await self._run_same_kind(number, end)
            if number < end:
                await self._run_single(number)
                number += 1

    async def _run_same_kind(self, start: int, end: int) -> int:
        """Make neighbouring changes of one kind together, as most batches consist of. Returns how many were made."""
        if start < self._singly_until or start + 1 == end:
            return 0
        self._tx.savepoint()
        try:
            made = await self._apply_same_kind(start, end)
        except (ThreefsError, OutOfNumbers) as error:  # the change meets the error again when it is made alone
            if isinstance(error, OutOfNumbers) and self._batch.waits_for_numbers:
                raise  # others have taken them since, and the transaction begins again
            self._rollback()
            self._singly_until = end
            return 0
        assert len(made) <= end - start, "only these changes are made"
        for number, (reply, delegation_reply) in enumerate(made, start):
            self._succeeded(number, reply.SerializeToString(), delegation_reply)
        self._keep_step()
        return len(made)

    async def _apply_same_kind(self, start: int, end: int) -> Sequence[tuple[Reply, bytes]]:
        """Each reply, and its delegation fields, serialized."""
        context, actor = self._batch.context, self._batch.actor
        same_kind = self._same_kind(start, end)
        match self._batch.kinds[start]:
            case "create":
                creates = (change.create for change in same_kind)
                return await create_batch(context, self.ns, creates, actor, self._batch.client)
            case "remove":
                return await remove_batch(context, self.ns, (change.remove for change in same_kind), actor)
            case "close":
                return await close_batch(context, self.ns, (change.close for change in same_kind), actor)
        return ()

    def _same_kind(self, start: int, end: int) -> Iterator[pb.Change]:
        """The changes from `start` on that are of one kind and have no results."""
        kinds, changes = self._batch.kinds, self._batch.changes
        for number in range(start, end):
            if kinds[number] != kinds[start] or self.results[number] is not None:
                return
            yield changes[number]

    async def _run_single(self, number: int) -> None:
        if self.results[number] is not None:
            return
        self._tx.savepoint()
        self._creator.places = self._expected_places(number)
        done = await self._change(number)
        if not isinstance(done, ThreefsError | NeedsChunkIo):
            self._succeeded(number, done.SerializeToString(), self.ns.take_delegation_reply())
            self._keep_step()
            return
        identity = self._batch.first + number
        if isinstance(done, ThreefsError):
            self.results[number] = failed_result(done)
            if self._outcome.maybe_committed:  # an earlier attempt that arrives later must fail, too
                self._stored_results[identity] = failed_result(done, identity)
        else:
            self.results[number] = self._stored_results[identity] = retry_alone_result(identity)
        self._rollback()

    def _succeeded(self, number: int, reply: bytes, delegation_reply: bytes) -> None:
        """The delegation fields are not stored with the result: a later repeat must not hear them."""
        kind, identity = self._batch.kinds[number], self._batch.first + number
        assert kind is not None, "a change that was made has a kind"
        self.results[number] = self._stored_results[identity] = successful_result(kind, identity, reply)
        if delegation_reply:
            self.results[number] = successful_result(kind, identity, reply + delegation_reply)

    def _keep_step(self) -> None:
        self._memo.commit_step()
        self._numbers.keep_step()

    def _rollback(self) -> None:
        """Take back everything that the last step has written and noted."""
        self._tx.rollback()
        self._memo.rollback_step()
        self._numbers.undo_step()
        self.ns = self._new_namespace()

    async def _change(self, number: int) -> Reply | NeedsChunkIo | ThreefsError:
        """Raises errors that concern the whole transaction."""
        try:
            return await self._work(number)(self.ns)
        except (Conflict, TooOld, Throttled, MaybeCommitted):
            raise
        except ThreefsError as error:
            return error if error.retry is Retry.NEVER else RETRY_ALONE  # it may succeed later
        except OutOfNumbers:
            if self._batch.waits_for_numbers:
                raise
            return RETRY_ALONE

    def _work(self, number: int) -> Work:
        """Raises InvalidArgument."""
        batch = self._batch
        context, actor, change = batch.context, batch.actor, batch.changes[number]
        match batch.kinds[number]:
            case "create":
                return create_transaction(context, change.create, actor, batch.client)
            case "remove":
                return remove_transaction(context, change.remove, actor)
            case "rename":
                return rename_transaction(context, change.rename, actor, in_batch=True)
            case "close":
                return close_transaction(context, change.close, actor)
            case "sync":
                return sync_transaction(context, change.sync, actor)
            case "publish":
                return publish_transaction(context, change.publish, actor, batch.client)
        raise InvalidArgument("a change is a create, remove, rename, close, sync or publish")

    def _expected_places(self, number: int) -> tuple[pb.Place, ...]:
        """Where the client expects a new name."""
        change = self._batch.changes[number]
        if self._batch.kinds[number] == "rename":
            return change.rename.source, change.rename.destination
        if self._batch.kinds[number] == "publish":
            return (change.publish.place,)
        return (change.create.place,)

    def store_results(self) -> None:
        """Write what all changes share: the times of directories, and the results."""
        assert not self._memo.step_changes, "every step has been committed or rolled back"
        for directory, now_ns in self._memo.changed.items():
            self.ns.set_times(directory, now_ns, now_ns)
        if self._stored_results:
            key = keys.replay(self._batch.client, next(iter(self._stored_results)))
            tick = self._batch.context.logical_clock.stamp()
            reply = b"".join(self._stored_results.values())
            self._tx.set(key, records.encode(Replay(method=methods.BATCH.number, tick=tick, reply=reply)))


def successful_result(kind: str, request: int, reply: bytes) -> bytes:
    """The result of a change of this kind, with the number of its identity and its serialized reply."""
    inner = head(_REPLY_TAGS[kind], len(reply)) + reply + number_field(_REQUEST_TAG, request)
    return head(_RESULT_TAG, len(inner)) + inner


def retry_alone_result(request: int) -> bytes:
    return serialized_result(pb.Changed(retry_alone=True, request=request))


def failed_result(error: ThreefsError, request: int = 0) -> bytes:
    """With the number of its identity if it is to be stored."""
    return serialized_result(pb.Changed(code=error.code, message=error.message[:MAX_MESSAGE_CHARS], request=request))


def serialized_result(result: pb.Changed) -> bytes:
    body = result.SerializeToString()
    return head(_RESULT_TAG, len(body)) + body
