"""Ends the leases of clients that have fallen silent, and gives up what was held under a lease that has ended.

The service that ended a tick does this once. Everything can be repeated: an ended lease stays on record until all that
was held under it is given up, so another service goes on after a crash. Looking for what a client held goes through all
that is held by anyone: it happens when a client has died, while opening and closing happen all the time and are spared
an index by client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from threefs.background import BackgroundTasks
from threefs.errors import Corrupt, NotServing, ThreefsError
from threefs.kv import records, retry
from threefs.kv.engine_api import Pair, Transaction
from threefs.layout import from_wire
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import ClientLocks, CutMark, LockWait, ReadHold, Renewal, WriteSession
from threefs_meta import transactions
from threefs_meta.access import permissions
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
#: Whoever cuts a file for longer marks it again.
_TRUNCATION_TICKS = 2
#: Who has written is not known: what is taken from the mode then is what any user's write takes.
_NOBODY = Credentials(uid=(1 << 32) - 1, gid=(1 << 32) - 1, is_super=False)

T = TypeVar("T")

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeasedKind:
    """One kind of what is held under leases: a range of records, and how one of them is given up."""

    keys: tuple[bytes, bytes]
    lease_of: Callable[[bytes, bytes], int]  # of key and value
    #: Of a key, if the second says in the same transaction that it still is under a lease that has ended.
    release: Callable[[Context, bytes, "IsEnded"], Awaitable[None]]


#: Whether what is found under a key (None: nothing) is held under a lease that has ended.
IsEnded = Callable[[bytes | None], bool]


class LeaseReaper:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._wake = asyncio.Event()
        self._background = BackgroundTasks()

    def start(self) -> None:
        self._background.start("logical clock", self._context.logical_clock.run(self._wake.set))
        self._background.start("lease reaper", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.reap()
            except ThreefsError as error:
                _LOG.warning("leases of clients cannot be looked after now", error=str(error))

    async def reap(self) -> None:
        await self._end_silent()
        await self._end_truncations()
        ended = await self._page(keys.ENDED, b"")
        numbers = {keys.lease_of(key) for key, _ in ended}
        if not numbers:
            return
        if all([await self._release(kind, numbers) for kind in LEASED_KINDS]):
            await self._change(lambda tx: _clear(tx, [key for key, _ in ended]))

    async def _end_silent(self) -> None:
        tick = self._context.logical_clock.tick
        after = b""
        while page := await self._page(keys.RENEWALS, after):
            for key, value in page:
                if _is_silent(key, value, tick):
                    await self._end(key, value)
            after = page[-1][0] + b"\0"

    async def _end(self, key: bytes, seen: bytes) -> None:
        async def end(tx: Transaction) -> bool:
            if await tx.get(key) != seen:
                return False  # renewed in the last moment
            client = keys.client_of(key)
            await leases.end(tx, client, await leases.current(tx, client))
            return True

        if await self._change(end):
            _LOG.warning("a client has fallen silent: what it held is given up", client=keys.client_of(key).hex())

    async def _end_truncations(self) -> None:
        """Readers wait for files that are being cut, but not for somebody who has died over that."""
        after = b""
        while page := await self._page(keys.TRUNCATION_MARKS, after):
            for key, value in page:
                if _is_abandoned(key, value, self._context.logical_clock.tick):
                    await self._change(lambda tx, key=key, value=value: self._end_truncation(tx, key, value))  # type: ignore[misc]
            after = page[-1][0] + b"\0"

    async def _end_truncation(self, tx: Transaction, key: bytes, seen: bytes) -> None:
        if await tx.get(key) != seen:
            return  # somebody cuts it anew
        ns = self._context.namespace(tx)
        inode = await ns.inode(keys.inode_of(key))
        if inode is not None and inode.cutting:
            inode.cutting = 0
            inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
            ns.put_inode(inode)
            _LOG.warning("a file was not cut to its end: a part of it may be zeros now", inode=inode.inode)
        tx.clear(key)

    async def _release(self, kind: LeasedKind, numbers: set[int]) -> bool:
        """All of one kind; False if something has to be tried again."""
        after = b""
        done = True
        while page := await self._page(kind.keys, after):
            mine = [key for key, value in page if _is_under_ended_lease(kind, key, numbers)(value)]
            for first in range(0, len(mine), _CONCURRENCY):
                results = await asyncio.gather(
                    *(
                        kind.release(self._context, key, _is_under_ended_lease(kind, key, numbers))
                        for key in mine[first : first + _CONCURRENCY]
                    ),
                    return_exceptions=True,
                )
                for error in results:
                    if error is not None:
                        _LOG.info("what a client held cannot be given up now", error=str(error))
                        done = False
            after = page[-1][0] + b"\0"
        return done

    async def _page(self, of: tuple[bytes, bytes], after: bytes) -> list[Pair]:
        return await transactions.run_readonly(
            self._context, lambda ns: ns.tx.get_range(after or of[0], of[1], limit=_PAGE, snapshot=True)
        )

    async def _change(self, function: Callable[[Transaction], Awaitable[T]]) -> T:
        context = self._context
        return await retry.run(context.engine, function, clock=context.clock, random=context.random, replayable=True)


def _is_silent(key: bytes, value: bytes, tick: int) -> bool:
    try:
        return leases.is_silent(records.decode(value, Renewal, key).stamp, tick)
    except Corrupt as error:  # the next renewal writes it anew; without one it must not count for ever
        _LOG.error("the last renewal of a client cannot be read: its lease ends", key=key.hex(), error=str(error))
        return True


def _is_abandoned(key: bytes, value: bytes, tick: int) -> bool:
    try:
        return tick >= records.decode(value, CutMark, key).stamp + _TRUNCATION_TICKS
    except Corrupt as error:
        _LOG.error("the mark of a file that is being cut cannot be read, and goes", key=key.hex(), error=str(error))
        return True


async def _clear(tx: Transaction, removed: list[bytes]) -> None:
    for key in removed:
        tx.clear(key)


def _is_under_ended_lease(kind: LeasedKind, key: bytes, numbers: set[int]) -> IsEnded:
    def is_ended(value: bytes | None) -> bool:
        if value is None:
            return False
        try:
            return kind.lease_of(key, value) in numbers
        except Corrupt as error:  # it must not hold up the others; `threefs fsck` reports it too
            _LOG.error("what a client holds cannot be read", key=key.hex(), error=str(error))
            return False

    return is_ended


async def end_session(context: Context, key: bytes, ended: IsEnded) -> None:
    """Close a write session in the name of its client. How much it has written only the chains know.

    Nor does anybody know whether it has written at all. So the file counts as changed: else readers that keep its old
    bytes would keep them for ever.
    """
    report = LengthReport(end=0, truncate_version=0, exact=True, written=True)
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
                    raise NotServing(f"a chain of inode {inode.inode} is not served by anybody")
                return changed
            widen_chains_used(inode, report)
            finish_appends(inode, keys.session_of(key))
            permissions.drop_privileges_on_write(inode, _NOBODY)
            ns.put_inode(inode)
            await write_sessions.end(ns, inode, keys.session_of(key), context.clock.wall_ns())
        tx.clear(key)
        return None

    await transactions.run_with_chunk_io(context, attempt)


async def _clear_if_ended(context: Context, key: bytes, ended: IsEnded) -> None:
    """Under the same key there may be something by now that the client holds under a new lease."""

    async def drop(tx: Transaction) -> None:
        if ended(await tx.get(key)):
            tx.clear(key)

    await retry.run(context.engine, drop, clock=context.clock, random=context.random, replayable=True)


#: Sessions come last: chains that are not there hold up their ends, and nothing else.
LEASED_KINDS = (
    LeasedKind(keys.HOLDS, lambda key, value: records.decode(value, ReadHold, key).lease, _clear_if_ended),
    LeasedKind(keys.LOCKS, lambda key, value: records.decode(value, ClientLocks, key).lease, fencing.fence_and_release),
    LeasedKind(keys.WAITS, lambda key, value: records.decode(value, LockWait, key).lease, _clear_if_ended),
    LeasedKind(keys.SESSIONS, lambda key, value: records.decode(value, WriteSession, key).lease, end_session),
)
