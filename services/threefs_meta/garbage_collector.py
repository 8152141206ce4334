"""Frees inodes that have lost their last name: chunks of files, entries of directories. Also clears old replay records.

The queue is in the store, ordered by the tick in which each inode may be freed. Every step is small and can be
repeated, so the work goes on after a crash, and two meta services may work on the same queue. A file that a client has
open is put off until it is closed. Any other one is marked before its first chunk goes. So a client that comes too late
to say that it has the file open hears that it is gone, and takes no missing chunk for a hole. The look at the queue
changes nothing, and only what can be freed is marked: else each change of an open file would be a conflict, and a file
that keeps changing would stop all this. An inode that cannot be freed, because its chains take no removals or a record
is damaged, is put off for longer each time, so it delays no other. Its chunks on other chains are removed at once: a
file that lies on many chains may never find all of them ready.
"""

import asyncio
import math
from dataclasses import dataclass

import structlog

from threefs.background import BackgroundTasks
from threefs.bounded_dict import BoundedDict
from threefs.errors import Corrupt, Retry, ThreefsError
from threefs.ids import ChainId
from threefs.kv.engine_api import Transaction
from threefs.layout import from_wire
from threefs.leases import REPLAYS_KEPT_S
from threefs.wire import meta_pb2 as pb
from threefs_meta import transactions
from threefs_meta.access import xattrs
from threefs_meta.chain_backoff import ChainBackoff
from threefs_meta.context import Context
from threefs_meta.file.length import remove_chunks
from threefs_meta.lease import write_sessions
from threefs_meta.locks import fencing
from threefs_meta.quota.attribution import end_quota_of_removed
from threefs_meta.store import entry_codec, keys
from threefs_meta.store.inode_numbers import count_removed
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import run_readonly
from threefs_meta.trash.trash_reaper import TrashReaper

PAGE = 64  # removals per round
ENTRIES_PER_TRANSACTION = 128
_REPLAY_PAGES = 64  # per round
_REPLAY_TICKS = 120  # from one pass to the next: five minutes at least
#: Ticks for which an inode is put off that could not be freed: the first time, and at most. They double each time.
_FIRST_BACKOFF_TICKS, _MAX_BACKOFF_TICKS = 1, 8
_MAX_BACKOFFS = 65_536  # that are remembered
_MAX_DRAINED = 65_536  # directories whose cursor is remembered
_IDLE_S = 0.5

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Removal:
    """A removal in the queue."""

    key: bytes
    inode: pb.Inode


@dataclass(frozen=True, slots=True)
class _Drained:
    """How far a directory is drained. Each step goes on there: to come by the places of the entries that are removed
    takes as long as their number is."""

    until: bytes = b""  # the last name that was removed, or passed
    damaged: bool = False  # an entry was passed


class GarbageCollector:
    def __init__(self, context: Context, removals_at_once: int = 16) -> None:
        self._context = context
        self._trash_reaper = TrashReaper(context)
        self._removal_cursor = b""  # where the next round begins; empty: at the front
        self._replay_cursor = b""
        self._replays_at = 0  # the tick of the next pass over all replay records
        #: Inodes that could not be freed: for how many ticks they are put off.
        self._backoff_ticks = BoundedDict[int, int](_MAX_BACKOFFS)
        self._chain_backoff = ChainBackoff(lambda: context.logical_clock.tick)
        #: By directory. Another service may come to its end, so some stay; one that is forgotten costs time only.
        self._drained = BoundedDict[int, _Drained](_MAX_DRAINED)
        self._slots = asyncio.Semaphore(removals_at_once)
        self._background = BackgroundTasks()

    def set_removals_at_once(self, count: int) -> None:
        """Those under way go on."""
        self._slots = asyncio.Semaphore(count)

    def start(self) -> None:
        self._background.start("garbage collector", self._run())

    async def stop(self) -> None:
        await self._background.stop()

    async def _run(self) -> None:
        while True:
            busy = 0
            for work in (
                self.collect,
                self._trash_reaper.expire,
                self._expire_replays_in_turn,
            ):  # one that fails does not stop the others
                try:
                    busy += await work()
                except ThreefsError as error:
                    _LOG.warning("a round of the garbage collector has failed", error=str(error))
            if not busy:
                await self._context.clock.sleep(_IDLE_S)

    # ---- removals ----

    async def collect(self) -> int:
        """One round over the next removals that are due. Returns how many inodes and entries were freed or put off."""
        page = await run_readonly(self._context, self._page)
        if not page and self._removal_cursor:
            self._removal_cursor = b""
            page = await run_readonly(self._context, self._page)
        self._removal_cursor = page[-1] + b"\0" if len(page) == PAGE else b""
        items, waiting = await run_readonly(self._context, lambda ns: self._partition(ns, page))
        freed = await self._defer_open(waiting) if waiting else 0
        files: list[_Removal] = []
        stuck: list[_Removal] = []
        for item in items:
            if item.inode.type != pb.DIRECTORY:
                files.append(item)
                continue
            try:
                taken = await self._drain_directory(item)
            except Corrupt as error:
                self._context.damaged.pass_over(item.key, error, "a removed directory cannot be freed")
                taken = None
            freed += taken or 0
            if taken is None:
                stuck.append(item)
        if files:
            files = await self._context.transact(lambda tx: self._mark(self._context.namespace(tx), files))
        # All end before this does, also if one fails or this is cancelled: the store may be closed afterwards.
        done = await asyncio.gather(*(self._free(item) for item in files), return_exceptions=True)
        for failed in done:
            if isinstance(failed, BaseException):
                raise failed
        stuck += [item for item, is_free in zip(files, done, strict=True) if not is_free]
        await self._defer_stuck(stuck)
        return freed + await self._clear_files([item for item, is_free in zip(files, done, strict=True) if is_free])

    async def _page(self, ns: Namespace) -> list[bytes]:
        tick = self._context.logical_clock.tick
        begin, end = keys.removals(tick, self._context.fronts.removals.first(tick))
        pairs = await ns.tx.get_range(self._removal_cursor or begin, end, limit=PAGE)
        if not self._removal_cursor:
            self._context.fronts.removals.found_empty(keys.due_of_removal(pairs[0][0]) if pairs else tick, tick)
        return [key for key, _ in pairs]

    async def _partition(self, ns: Namespace, page: list[bytes]) -> tuple[list[_Removal], list[_Removal]]:
        """The inodes that can be freed, and those that a client has open."""
        ready: list[_Removal] = []
        waiting: list[_Removal] = []
        for key in page:
            item = await self._removal(ns, key)
            if item is not None:
                (waiting if await write_sessions.is_open(ns, item.inode.inode) else ready).append(item)
        return ready, waiting

    async def _mark(self, ns: Namespace, items: list[_Removal]) -> list[_Removal]:
        """Mark those that can still be freed, and return them. A file without a name is not opened again, so with its
        mark it stays so.

        The record of one that was opened meanwhile is not read: its changes are no conflicts.
        """
        marked: list[_Removal] = []
        for key in (item.key for item in items):
            if await write_sessions.is_open(ns, keys.removed_inode(key)) or await ns.tx.get(key) is None:
                continue
            item = await self._removal(ns, key)
            if item is None:
                continue
            assert item.inode.type != pb.DIRECTORY, "a directory is emptied without a mark"
            if not item.inode.freed:
                item.inode.freed = True
                ns.put_inode_unseen(item.inode)
            marked.append(item)
        return marked

    async def _removal(self, ns: Namespace, key: bytes) -> _Removal | None:
        """None: there is nothing to free, or it cannot be read."""
        number = keys.removed_inode(key)
        try:
            inode = await ns.inode(number)
        except Corrupt as error:
            self._context.damaged.pass_over(key, error, "a removed inode cannot be read")
            return None
        if inode is not None and inode.nlink:
            _LOG.error("an inode with a name is queued for removal; see `threefs fsck`", inode=number)
            return None
        return None if inode is None else _Removal(key, inode)

    async def _defer_open(self, waiting: list[_Removal]) -> int:
        """Put them off to a later tick, so that the removals behind them have their turn."""

        async def move(tx: Transaction) -> int:
            for item in waiting:
                value = await tx.get(item.key)
                if value is not None:
                    tx.clear(item.key)
                    tx.set(keys.removal(self._context.logical_clock.stamp(), item.inode.inode), value)
            return len(waiting)

        return await self._context.transact(move)

    async def _defer_stuck(self, stuck: list[_Removal]) -> None:
        """Put each of them off to a later tick, for longer each time."""
        if not stuck:
            return

        async def move(tx: Transaction) -> int:
            for item in stuck:
                value = await tx.get(item.key)
                if value is not None:
                    due = self._context.logical_clock.stamp() + self._backoff_ticks.get(
                        item.inode.inode, _FIRST_BACKOFF_TICKS
                    )
                    assert due > self._context.logical_clock.tick, "what is put off is not due now"
                    tx.clear(item.key)
                    tx.set(keys.removal(due, item.inode.inode), value)
            return len(stuck)

        await self._context.transact(move)
        for item in stuck:
            ticks = self._backoff_ticks.get(item.inode.inode, _FIRST_BACKOFF_TICKS)
            self._backoff_ticks.put(item.inode.inode, min(2 * ticks, _MAX_BACKOFF_TICKS))

    async def _free(self, item: _Removal) -> bool:
        """Remove what a file has besides its record. False if that has to be tried again."""
        inode = item.inode
        assert not inode.nlink, "chunks go only after the last name (I10)"
        async with self._slots:
            try:
                if inode.type == pb.FILE and not await self._free_chunks(inode):
                    return False
                await self._clear_xattrs(inode)
            except ThreefsError as error:
                _LOG.info("an inode cannot be freed now", inode=inode.inode, error=str(error))
                return False
        self._backoff_ticks.pop(inode.inode, None)
        return True

    async def _free_chunks(self, inode: pb.Inode) -> bool:
        """Remove what a file has on the chains that take removals now. False if it may have chunks on others."""
        layout = from_wire(inode.layout)
        stripe = layout.chains(self._context.routing().tables.get(layout.table_id, ()))
        used = set(stripe[: write_sessions.chains_used_by_record(self._context, inode) or None])
        all_free = True
        for chain in sorted(set(stripe) if inode.fence else used):
            all_free &= await self._free_on(chain, inode, chain in used)
        return all_free

    async def _free_on(self, chain: ChainId, inode: pb.Inode, has_chunks: bool) -> bool:
        timeout_s = self._patience_s(chain)
        if timeout_s is None:
            return False
        try:
            if has_chunks:
                await remove_chunks(self._context, chain, inode, timeout_s)
            if inode.fence:
                await fencing.remove_fence(self._context, chain, inode, timeout_s)
        except ThreefsError as error:
            _LOG.info("chunks cannot be freed now", inode=inode.inode, chain=chain, error=str(error))
            if error.retry is not Retry.NEVER:  # else the file is at fault, and nobody has waited
                self._chain_backoff.failed(chain)
            return False
        self._chain_backoff.succeeded(chain)
        return True

    def _patience_s(self, chain: ChainId) -> float | None:
        """How long a removal may wait for the chain. None: it would only wait."""
        known = self._context.routing().chains.get(chain)
        return self._chain_backoff.begin(chain) if known is not None and known.tail is not None else None

    async def _clear_xattrs(self, inode: pb.Inode) -> None:
        """In a transaction of their own: together with those of other files they might be too many."""

        async def clear(tx: Transaction) -> int:
            await xattrs.clear(Namespace(tx), inode)
            return 0

        if inode.xattr_bytes:
            await self._context.transact(clear)

    async def _clear_files(self, files: list[_Removal]) -> int:
        async def clear(tx: Transaction) -> int:
            ns = self._context.namespace(tx)
            left = [item for item in files if await tx.get(item.key) is not None]
            for item in left:
                self._clear(ns, item)
            await count_removed(tx, len(left), self._context.damaged)
            return len(files)  # also if an earlier attempt of unknown outcome had cleared them

        return await self._context.transact(clear) if files else 0

    async def _drain_directory(self, item: _Removal) -> int | None:
        """Remove some entries of a directory without a name, and the directory once it is empty. None: it is not empty,
        but the entries left cannot be removed."""
        directory = item.inode.inode
        start = self._drained.get(directory, _Drained())

        async def drain(tx: Transaction) -> tuple[int | None, _Drained]:
            ns = self._context.namespace(tx)
            inode = await ns.inode(directory)
            if inode is None:
                return 1, _Drained()  # done by an earlier attempt of unknown outcome, or by another service
            if inode.nlink or await tx.get(item.key) is None:
                return 0, _Drained()  # a repair has given it its name back, or another service has put it off
            rows = await tx.get_range(*keys.entries(directory, start.until), limit=ENTRIES_PER_TRANSACTION)
            damaged = start.damaged
            for key, value in rows:
                try:
                    await self._unlink_child(ns, key, value)
                except Corrupt as error:
                    damaged = True
                    self._context.damaged.pass_over(key, error, "an entry of a removed directory cannot be removed")
            if len(rows) == ENTRIES_PER_TRANSACTION:
                return len(rows), _Drained(keys.entry_of(rows[-1][0])[1], damaged)
            if damaged:
                return None, _Drained()  # from the start the next time: the entry may have been repaired
            if start.until and not await ns.is_empty(directory):
                return len(rows), _Drained()  # it had a name again for a while
            await xattrs.clear(ns, item.inode)
            await end_quota_of_removed(ns, item.inode)
            self._clear(ns, item)
            await count_removed(tx, 1, self._context.damaged)
            return len(rows) + 1, _Drained()

        done, end = await self._context.transact(drain)
        self._drained.pop(directory, None)
        if end.until:
            self._drained.put(directory, end)
        return done

    async def _unlink_child(self, ns: Namespace, key: bytes, value: bytes) -> None:
        """Raises Corrupt before it changes anything."""
        directory, name = keys.entry_of(key)
        entry = entry_codec.decode(value, key)
        inode = await ns.inode(entry.inode)
        now_ns = self._context.clock.wall_ns()
        if inode is None:
            _LOG.error("an entry of a removed directory names nothing", directory=directory, name=name)
        if inode is not None:
            ns.unlink(inode, now_ns)
        ns.clear_entry(directory, name, entry, now_ns)

    def _clear(self, ns: Namespace, item: _Removal) -> None:
        assert not item.inode.nlink, "only an inode without a name is freed (I10)"
        ns.clear_inode(item.inode)
        ns.tx.clear(item.key)

    # ---- replays ----

    async def _expire_replays_in_turn(self) -> int:
        """A pass comes by the places of all records that were cleared before."""
        tick = self._context.logical_clock.tick
        if self._replay_cursor or tick >= self._replays_at:
            self._replays_at = tick + _REPLAY_TICKS
            await self.expire_replays()
        return 0

    async def expire_replays(self) -> int:
        """Clear old replay records of some clients. Their age is in ticks, which no restart and no clock sets back."""
        ticks = self._context.logical_clock
        before_tick = ticks.tick - math.ceil(REPLAYS_KEPT_S / ticks.tick_s)
        for _ in range(_REPLAY_PAGES):
            self._replay_cursor = await transactions.expire_replays(self._context, self._replay_cursor, before_tick)
            if not self._replay_cursor:
                break
        return 0
