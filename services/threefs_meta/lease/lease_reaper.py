"""Ends the leases of silent clients, and releases what was held under leases that have ended.

The service that raised a tick does this once. Every step can be repeated: an ended lease stays on record until
everything that was held under it is released, so another service goes on after a crash. The search for what a client
held reads the records of all clients. It is rare, because it follows the death of a client; opening and closing are
frequent, and need not maintain an index by client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from threefs.background import BackgroundTasks
from threefs.errors import Corrupt, NotServing, ThreefsError
from threefs.kv import records
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
#: A truncate that takes longer marks the file again.
_TRUNCATION_TICKS = 2
#: The writer is not known: the mode loses the privileges that the write of any user takes away.
_UNKNOWN_WRITER = Credentials(uid=(1 << 32) - 1, gid=(1 << 32) - 1, is_super=False)

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeasedKind:
    """One kind of record that is held under leases, and how one of them is released."""

    keys: tuple[bytes, bytes]
    lease_of: Callable[[bytes, bytes], int]  # of key and value
    #: Releases the record under a key, if fencing.IsEnded is true of it in the same transaction.
    release: Callable[[Context, bytes, fencing.IsEnded], Awaitable[None]]


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
                _LOG.warning("leases of clients cannot be checked now", error=str(error))

    async def reap(self) -> None:
        await self._end_silent()
        await self._end_truncations()
        ended = await self._page(keys.ENDED, b"")
        numbers = {keys.lease_of(key) for key, _ in ended}
        if not numbers:
            return
        if all([await self._release(kind, numbers) for kind in LEASED_KINDS]):
            await self._context.transact(lambda tx: _clear(tx, [key for key, _ in ended]))

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
                return False  # the client has renewed it since
            client = keys.client_of(key)
            await leases.end(tx, client, await leases.current(tx, client))
            return True

        if await self._context.transact(end):
            _LOG.warning("a client is silent: what it held is released", client=keys.client_of(key).hex())

    async def _end_truncations(self) -> None:
        """Readers wait for files that are being truncated, but not for a service that has died while it did so."""
        after = b""
        while page := await self._page(keys.TRUNCATION_MARKS, after):
            for key, value in page:
                if _is_abandoned(key, value, self._context.logical_clock.tick):
                    await self._context.transact(lambda tx, key=key, value=value: self._end_truncation(tx, key, value))  # type: ignore[misc]
            after = page[-1][0] + b"\0"

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

    async def _release(self, kind: LeasedKind, numbers: set[int]) -> bool:
        """Release all records of one kind under these leases; False if one has to be tried again."""
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
                        _LOG.info("what a client held cannot be released now", error=str(error))
                        done = False
            after = page[-1][0] + b"\0"
        return done

    async def _page(self, of: tuple[bytes, bytes], after: bytes) -> list[Pair]:
        return await transactions.run_readonly(
            self._context, lambda ns: ns.tx.get_range(after or of[0], of[1], limit=_PAGE, snapshot=True)
        )


def _is_silent(key: bytes, value: bytes, tick: int) -> bool:
    try:
        return leases.is_silent(records.decode(value, Renewal, key).stamp, tick)
    except Corrupt as error:  # the next renewal replaces it; without one the lease must end
        _LOG.error("the last renewal of a client cannot be read: its lease ends", key=key.hex(), error=str(error))
        return True


def _is_abandoned(key: bytes, value: bytes, tick: int) -> bool:
    try:
        return tick >= records.decode(value, CutMark, key).stamp + _TRUNCATION_TICKS
    except Corrupt as error:
        _LOG.error("the mark of a truncate cannot be read, and is removed", key=key.hex(), error=str(error))
        return True


async def _clear(tx: Transaction, removed: list[bytes]) -> None:
    for key in removed:
        tx.clear(key)


def _is_under_ended_lease(kind: LeasedKind, key: bytes, numbers: set[int]) -> fencing.IsEnded:
    def is_ended(value: bytes | None) -> bool:
        if value is None:
            return False
        try:
            return kind.lease_of(key, value) in numbers
        except Corrupt as error:  # it must not stop the others; `threefs fsck` reports it
            _LOG.error("what a client holds cannot be read", key=key.hex(), error=str(error))
            return False

    return is_ended


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
            permissions.drop_privileges_on_write(inode, _UNKNOWN_WRITER)
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


#: Sessions come last: a chain that nobody serves delays their end, and nothing else.
LEASED_KINDS = (
    LeasedKind(keys.HOLDS, lambda key, value: records.decode(value, ReadHold, key).lease, _clear_if_ended),
    LeasedKind(keys.LOCKS, lambda key, value: records.decode(value, ClientLocks, key).lease, fencing.fence_and_release),
    LeasedKind(keys.WAITS, lambda key, value: records.decode(value, LockWait, key).lease, _clear_if_ended),
    LeasedKind(keys.SESSIONS, lambda key, value: records.decode(value, WriteSession, key).lease, end_session),
)
