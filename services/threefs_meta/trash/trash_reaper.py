"""Removes entries from the trash that are due: few per round, each in a transaction of its own."""

from threefs.errors import Corrupt
from threefs.kv import records
from threefs.kv.engine_api import Transaction
from threefs.wire import meta_pb2 as pb
from threefs.wire.records_pb2 import Trashed
from threefs_meta.context import Context
from threefs_meta.quota.attribution import end_quota_of_removed
from threefs_meta.store import keys
from threefs_meta.transactions import run_readonly

PAGE = 32


class TrashReaper:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = b""  # where the next round begins; empty: at the front

    async def expire(self) -> int:
        """One round. Returns how many records were handled. A damaged record does not stop the others."""
        page = await run_readonly(self._context, lambda ns: self._page(ns.tx))
        if not page and self._next:
            self._next = b""
            page = await run_readonly(self._context, lambda ns: self._page(ns.tx))
        self._next = page[-1] + b"\0" if len(page) == PAGE else b""
        done = 0
        for key in page:
            try:
                await self._context.transact(lambda tx, key=key: self._remove(tx, key))  # type: ignore[misc]
                done += 1
            except Corrupt as error:
                self._context.damaged.pass_over(key, error, "an entry of the trash cannot be removed")
        return done

    async def _page(self, tx: Transaction) -> list[bytes]:
        tick = self._context.logical_clock.tick
        begin, end = keys.trashed_until(tick, self._context.fronts.trash.first(tick))
        page = [key for key, _ in await tx.get_range(self._next or begin, end, limit=PAGE, snapshot=True)]
        if not self._next:
            self._context.fronts.trash.found_empty(keys.trashed_at(page[0])[0] if page else tick, tick)
        return page

    async def _remove(self, tx: Transaction, key: bytes) -> None:
        value = await tx.get(key)
        if value is None:
            return
        record = records.decode(value, Trashed, key)
        ns = self._context.namespace(tx)
        _, directory, name = keys.trashed_at(key)
        entry = await ns.entry(directory, name)
        if entry is not None and entry.inode == record.inode:
            now_ns = self._context.clock.wall_ns()
            inode = await ns.require_inode(entry.inode)
            if inode.type == pb.DIRECTORY and await ns.is_empty(inode.inode) and not inode.xattr_bytes:
                await end_quota_of_removed(ns, inode)
                ns.clear_inode_at_once(inode)
            else:
                ns.unlink(inode, now_ns)
            ns.clear_entry(directory, name, entry, now_ns)
        tx.clear(key)
