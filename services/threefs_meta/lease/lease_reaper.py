"""Ends the leases of silent clients, and releases what was held under leases that have ended.

The service that raised a tick does this once. Every step can be repeated: an ended lease stays on record until
everything that was held under it is released, so another service goes on after a crash. The search for what a client
held reads the records of all clients. It is rare, because it follows the death of a client; opening and closing are
frequent, and need not maintain an index by client.

A release may wait for chains that do not answer. So another task ends leases and truncates: it asks no chain.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from threefs.background import BackgroundTasks
from threefs.errors import Corrupt, NotServing, ThreefsError
from threefs.kv import records
from threefs.kv.engine_api import Pair, Transaction
from threefs.layout import from_wire
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks, CutMark, LockWait, ReadHold, Renewal, WriteSession
from threefs_meta import transactions
from threefs_meta.access import privileges
from threefs_meta.access.credentials import Credentials
from threefs_meta.context import Context
from threefs_meta.file import layout_policy
from threefs_meta.file.length import LengthReport, LengthUpdate, finish_appends, widen_chains_used
from threefs_meta.lease import leases, write_sessions
from threefs_meta.locks import fencing
from threefs_meta.store import keys
from threefs_meta.transactions import NeedsChunkIo

_PAGE = 256
_CONCURRENCY = 16
#: A truncate that takes longer marks the file again.
_TRUNCATION_TICKS = 2
_UNREADABLE_HELD = "what a client holds cannot be read"
#: The writer is not known: the mode loses the privileges that the write of any user takes away.
_UNKNOWN_WRITER = Credentials(uid=(1 << 32) - 1, gid=(1 << 32) - 1, is_super=False)

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeasedKind:
    """One kind of record that is held under leases, and how one of them is released."""

    keys: tuple[bytes, bytes]
    client_of: Callable[[bytes, bytes], bytes]  # of key and value
    lease_of: Callable[[bytes, bytes], int]  # of key and value
    #: Releases the record under a key, if fencing.IsEnded is true of it in the same transaction.
    release: Callable[[Context, bytes, fencing.IsEnded], Awaitable[None]]


class LeaseReaper:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("logical clock", self._context.logical_clock.run(self._wake.set))
        self._background.start("end of leases", self._run(self._wake, self._end_abandoned))
        self._background.start("release of what was held", self._run(self._ended, self._release_ended))

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self, woken: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await woken.wait()
            woken.clear()
            try:
                await work()
            except ThreefsError as error:
                _LOG.warning("leases of clients cannot be checked now", error=str(error))

    async def reap(self) -> None:
        """A damaged record delays nothing but what needs that record."""
        await self._end_abandoned()
        await self._release_ended()

    async def _end_abandoned(self) -> None:
        await self._end_silent()
        await self._end_truncations()
        self._ended.set()

    async def _release_ended(self) -> None:
        numbers = {keys.lease_of(key) async for page in self._pages(keys.ENDED) for key, _ in page}
        if not numbers:
            return
        held: set[int] = set()
        for kind in LEASED_KINDS:
            held |= await self._release(kind, numbers)
        done = sorted(numbers - held)
        for first in range(0, len(done), _PAGE):
            released = [keys.ended(number) for number in done[first : first + _PAGE]]
            await self._context.transact(lambda tx, released=released: _clear(tx, released))  # type: ignore[misc]

    async def _end_silent(self) -> None:
        tick = self._context.logical_clock.tick
        async for page in self._pages(keys.RENEWALS):
            for key, value in page:
                if self._is_silent(key, value, tick) and await self._end(key, value):
                    _LOG.warning("a client is silent: what it held is released", client=keys.client_of(key).hex())

    def _is_silent(self, key: bytes, value: bytes, tick: int) -> bool:
        try:
            return leases.is_silent(records.decode(value, Renewal, key).stamp, tick)
        except Corrupt as error:  # the next renewal replaces it; without one the lease must end
            self._pass_over(key, error, "the last renewal of a client cannot be read: its lease ends")
            return True

    async def _end(self, key: bytes, seen: bytes) -> bool:
        """End the lease of a silent client. False if the client has renewed it since."""
        client = keys.client_of(key)

        async def end(tx: Transaction) -> bool:
            if await tx.get(key) != seen:
                return False
            await leases.end(tx, client, await leases.current(tx, client))
            return True

        try:
            return await self._context.transact(end)
        except Corrupt as error:
            self._pass_over(keys.client(client), error, "the lease of a client cannot be read, and is ended")
        numbers = await self._leases_of(client)

        async def end_unreadable(tx: Transaction) -> bool:
            if await tx.get(key) != seen:
                return False
            await leases.end_unreadable(tx, client, numbers)
            return True

        return await self._context.transact(end_unreadable)

    async def _leases_of(self, client: bytes) -> set[int]:
        """The leases under which the client holds something. Nothing is added while its own record is damaged."""
        found = set()
        for kind in LEASED_KINDS:
            async for page in self._pages(kind.keys):
                for key, value in page:
                    try:
                        if kind.client_of(key, value) == client:
                            found.add(kind.lease_of(key, value))
                    except Corrupt as error:
                        self._pass_over(key, error, _UNREADABLE_HELD)
        return found - {0}

    async def _end_truncations(self) -> None:
        """Readers wait for files that are being truncated, but not for a service that has died while it did so."""
        async for page in self._pages(keys.TRUNCATION_MARKS):
            for key, value in page:
                if not self._is_abandoned(key, value):
                    continue
                try:
                    await self._context.transact(lambda tx, key=key, value=value: self._end_truncation(tx, key, value))  # type: ignore[misc]
                except Corrupt as error:
                    self._pass_over(key, error, "a truncate that was not finished cannot be ended")

    def _is_abandoned(self, key: bytes, value: bytes) -> bool:
        try:
            stamp: int = records.decode(value, CutMark, key).stamp
        except Corrupt as error:
            self._pass_over(key, error, "the mark of a truncate cannot be read, and is removed")
            return True
        return self._context.logical_clock.tick >= stamp + _TRUNCATION_TICKS

    async def _end_truncation(self, tx: Transaction, key: bytes, seen: bytes) -> None:
        if await tx.get(key) != seen:
            return  # another truncate has marked it
        ns = self._context.namespace(tx)
        inode = await ns.inode(keys.inode_of(key))
        if inode is not None and inode.cutting:
            inode.cutting = 0
            inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
            ns.put_inode(inode)
            _LOG.warning("a truncate was not finished: a part of the file may be zeros now", inode=inode.inode)
        tx.clear(key)

    async def _release(self, kind: LeasedKind, numbers: set[int]) -> set[int]:
        """Release all records of one kind under these leases. Returns the leases of those that have to be tried
        again."""
        held: set[int] = set()
        async for page in self._pages(kind.keys):
            ended = [(key, value) for key, value in page if self._is_ended(kind, key, value, numbers)]
            mine = [(key, kind.lease_of(key, value)) for key, value in ended]
            for first in range(0, len(mine), _CONCURRENCY):
                part = mine[first : first + _CONCURRENCY]
                results = await asyncio.gather(
                    *(
                        kind.release(self._context, key, partial(self._is_ended, kind, key, numbers=numbers))
                        for key, _ in part
                    ),
                    return_exceptions=True,
                )
                for (key, lease), error in zip(part, results, strict=True):
                    if error is None:
                        continue
                    held.add(lease)
                    if isinstance(error, Corrupt):
                        self._pass_over(key, error, "what a client held cannot be released")
                    else:
                        _LOG.info("what a client held cannot be released now", error=str(error))
        return held

    def _is_ended(self, kind: LeasedKind, key: bytes, value: bytes | None, numbers: set[int]) -> bool:
        """Whether the record is held under one of these leases."""
        if value is None:
            return False
        try:
            return kind.lease_of(key, value) in numbers
        except Corrupt as error:
            self._pass_over(key, error, _UNREADABLE_HELD)
            return False

    def _pass_over(self, key: bytes, error: Corrupt, effect: str) -> None:
        self._context.damaged.pass_over(key, error, effect)

    async def _pages(self, of: tuple[bytes, bytes]) -> AsyncIterator[list[Pair]]:
        after = b""
        while page := await self._page(of, after):
            yield page
            after = page[-1][0] + b"\0"

    async def _page(self, of: tuple[bytes, bytes], after: bytes) -> list[Pair]:
        return await transactions.run_readonly(
            self._context, lambda ns: ns.tx.get_range(after or of[0], of[1], limit=_PAGE, snapshot=True)
        )


async def _clear(tx: Transaction, removed: list[bytes]) -> None:
    for key in removed:
        tx.clear(key)


async def end_session(context: Context, key: bytes, ended: fencing.IsEnded) -> None:
    """Close a write session in place of its client. Only the chains know how much the client has written.

    Whether it has written at all is not known either. So the file counts as changed: otherwise readers would keep its
    old bytes for ever.
    """
    report = LengthReport(end=0, truncate_version=0, exact=True, written=True, by_writer=False)
    length_update = LengthUpdate(context, report)

    async def attempt(tx: Transaction) -> NeedsChunkIo | None:
        if not ended(await tx.get(key)):
            return None
        ns = context.namespace(tx)
        inode = await ns.inode(keys.inode_of(key))
        if inode is not None and inode.type == pb.FILE:
            changed = length_update.apply(inode)
            if isinstance(changed, NeedsChunkIo):
                if not layout_policy.is_served(context.routing(), from_wire(inode.layout)):
                    raise NotServing(f"no target serves a chain of inode {inode.inode}: its write session stays open")
                return changed
            widen_chains_used(inode, report)
            finish_appends(inode, keys.session_of(key))
            await privileges.drop_on_write(ns, inode, _UNKNOWN_WRITER)
            ns.put_inode(inode)
            await write_sessions.end(ns, inode, keys.session_of(key), context.clock.wall_ns())
        tx.clear(key)
        return None

    await transactions.run_with_chunk_io(context, attempt)


async def _clear_if_ended(context: Context, key: bytes, ended: fencing.IsEnded) -> None:
    """Only if the record is still of the ended lease: the client may hold the same thing under a new one."""

    async def drop(tx: Transaction) -> None:
        if ended(await tx.get(key)):
            tx.clear(key)

    await context.transact(drop)


#: Sessions come last: their chains are asked for the length of the file, and nothing else has to wait for the answers.
LEASED_KINDS = (
    LeasedKind(
        keys.HOLDS,
        lambda key, value: keys.client_of_hold(key),
        lambda key, value: records.decode(value, ReadHold, key).lease,
        _clear_if_ended,
    ),
    LeasedKind(
        keys.LOCKS,
        lambda key, value: keys.client_of_lock(key),
        lambda key, value: records.decode(value, ClientLocks, key).lease,
        fencing.fence_and_release,
    ),
    LeasedKind(
        keys.WAITS,
        lambda key, value: keys.client_of_wait(key),
        lambda key, value: records.decode(value, LockWait, key).lease,
        _clear_if_ended,
    ),
    LeasedKind(
        keys.SESSIONS,
        lambda key, value: records.decode(value, WriteSession, key).client,
        lambda key, value: records.decode(value, WriteSession, key).lease,
        end_session,
    ),
)
