"""Truncates.

A truncate to length L first removes all bytes from L on from the chains. Then one transaction sets the length and
raises the truncate version, provided that the inode is still exactly what it was before the bytes were removed.
- Why in this order: if the length were set first, a crash would leave old bytes beyond it, and a later extension would
  show them. This way a crash leaves zeros at the end of a file that still has its old length: the truncate has an
  unknown outcome, and the bytes that it destroyed stay destroyed.
- Why the proviso: a write may land behind the removal and be reported before the transaction; the report changes the
  inode. The length alone must not cut off that write and leave its bytes behind, so the removal is done again. A write
  that is reported later carries an old truncate version, and its end is looked up on the chains (`file/length.py`).
- Why only listed versions are removed: a service may hang in the middle, while its caller asks another service and then
  writes. So a page of chunks is listed with their versions, then the inode must still be what it was, and only then
  are exactly those versions removed. What was written later has another version, or was not listed, or was reported.
- What readers see during a truncate: before the first bytes go, the inode is marked (`cutting`). A reader that finds
  a hole asks for the inode, and waits while there is a mark. So it sees the file as it was before or as it is
  afterwards, and never zeros in place of old bytes. The lease reaper removes the mark of a service that died; the
  destroyed bytes then read as zeros.
- What becomes of appends: one that is under way has a place, and its bytes may arrive when the file has been cut and
  the same place was given to somebody else. So before the first bytes go, the inode is marked, then the fence is
  raised: the bytes have arrived by then, or are refused. A refused writer sees the mark, waits until the truncate is
  over, and asks for another place.
- Why an extension removes bytes too: bytes beyond the length may have been written and not reported yet. Such a write
  comes before the truncate, so its bytes must be gone.
"""

from collections.abc import Awaitable, Callable, Sequence

from threefs.cluster.chunk_client import ListedChunk
from threefs.cluster.chunk_update import ChunkUpdate
from threefs.errors import ChunkChanged
from threefs.ids import ChainId, ChunkId, InodeId
from threefs.kv import records
from threefs.layout import FileLayout, from_wire
from threefs.wire import meta_pb2 as pb
from threefs.wire import storage_pb2
from threefs.wire.records_pb2 import CutMark
from threefs_meta.context import CHUNKS_TIMEOUT_S, Context, FileChunks
from threefs_meta.file.length import check_length
from threefs_meta.locks import fencing
from threefs_meta.store import keys
from threefs_meta.store.namespace import Namespace
from threefs_meta.transactions import NeedsChunkIo

#: Rounds against writers that write to the part that is being removed.
_MAX_PASSES = 8


class Truncation:
    """One truncate. Between two attempts of its transaction it remembers for which record the bytes were removed."""

    def __init__(self, context: Context, length: int) -> None:
        self._context = context
        self._length = length
        self._has_begun = False
        self._removed_for: bytes | None = None
        self._ended_appends = b""  # the appends behind the new length that were under way when the fence was raised

    def apply(self, ns: Namespace, inode: pb.Inode, chains: int = 0) -> NeedsChunkIo | None:
        """Change the record, which the caller stores, or say what has to be done first. Raises FileTooLarge,
        QuotaExceeded.

        Quotas are asked until it sets its mark and removes the first bytes, and not again: a truncate that is refused
        has changed nothing. But a repeat of the request after a failure, at this service or another one, asks again,
        and may be refused though bytes have gone.

        The file lies on the first `chains` of its stripe (0: on any), see `write_sessions.chains_used`.
        """
        check_length(inode, self._length)
        if not self._has_begun:
            self._context.quotas.check_growth(inode, self._length - inode.length)
        record = inode.SerializeToString()
        if record != self._removed_for:
            return NeedsChunkIo(lambda: self._remove_bytes(from_wire(inode.layout), inode.inode, chains, record))
        if inode.cutting == self._length + 1:
            inode.cutting = 0
            ns.tx.clear(keys.truncation_mark(inode.inode))
        truncate_appends(inode, self._length)
        assert not inode.append_end and all(one.end <= self._length for one in inode.appends), "no append is behind L"
        inode.length = self._length
        inode.truncate_version += 1
        inode.mtime_ns = inode.ctime_ns = self._context.clock.wall_ns()
        return None

    async def _remove_bytes(self, layout: FileLayout, inode: int, chains: int, record: bytes) -> None:
        marked, removes = self._with_mark(record), False
        appends = self._appends_cut(record)
        if appends and appends != self._ended_appends:  # the fence changes the inode, so this is called again
            if await self._mark(inode, record, marked):
                await fencing.end_writes(self._context, inode, 0)
                self._ended_appends = appends
            return

        async def may_remove() -> bool:
            nonlocal removes
            removes = await self._mark(inode, record, marked)
            return removes

        if await truncate_chunks(self._context.chunks, layout, InodeId(inode), self._length, chains, may_remove):
            self._removed_for = marked if removes else record

    async def _mark(self, inode: int, record: bytes, marked: bytes) -> bool:
        context = self._context
        may_go_on = await context.transact(lambda tx: _mark(context.namespace(tx), inode, record, marked))
        self._has_begun |= may_go_on
        return may_go_on

    def _appends_cut(self, record: bytes) -> bytes:
        """The appends with a place behind the new length; empty if there are none."""
        inode = pb.Inode.FromString(record)
        cut = [one.SerializeToString() for one in inode.appends if one.end > self._length]
        return b"".join(cut) or (b"forgotten" if inode.append_end > max(self._length, inode.length) else b"")

    def _with_mark(self, record: bytes) -> bytes:
        """No mark is needed if no visible byte and no append goes, or if another truncate has marked at least as
        much."""
        inode = pb.Inode.FromString(record)
        cuts = self._length < inode.length or self._appends_cut(record)
        if cuts and not 0 < inode.cutting <= self._length + 1:
            inode.cutting = self._length + 1
        is_marked = 0 < inode.cutting <= self._length + 1
        assert is_marked or self._length >= inode.length, "bytes that readers can see go only under a mark"
        return inode.SerializeToString()


async def _mark(ns: Namespace, number: int, record: bytes, marked: bytes) -> bool:
    """Mark the inode before bytes are removed. False if it is not what it was when the chunks were listed."""
    inode = await ns.inode(number)
    found = None if inode is None else inode.SerializeToString()
    if found == record != marked:
        ns.put_inode_unseen(pb.Inode.FromString(marked))
        ns.tx.set(keys.truncation_mark(number), records.encode(CutMark(stamp=ns.stamp)))
        return True
    return found == marked


def truncate_appends(inode: pb.Inode, length: int) -> None:
    """The next append goes to the new end. Appends that have a place behind it come before the truncate: they are
    over."""
    inode.append_end = 0
    left = [one for one in inode.appends if one.end <= length]
    del inode.appends[:]
    inode.appends.extend(left)


async def truncate_chunks(
    chunks: FileChunks,
    layout: FileLayout,
    inode: InodeId,
    length: int,
    chains: int,
    may_remove: Callable[[], Awaitable[bool]],
) -> bool:
    """Remove the bytes from `length` on that existed before `may_remove` was asked. False if it said no, or if writers
    changed chunks in every round."""
    first = length // layout.chunk_bytes
    for _ in range(_MAX_PASSES):
        refused = False
        async for chain, page in chunks.listing(layout, inode, first, chains=chains, timeout_s=CHUNKS_TIMEOUT_S):
            updates = _truncations(layout, inode, length, chain, page)
            if not updates:
                continue
            if not await may_remove():
                return False
            try:
                await chunks.apply(updates, timeout_s=CHUNKS_TIMEOUT_S)
            except ChunkChanged:  # a writer changed one of them; the others are done
                refused = True
        if not refused:
            return True
    return False


def _truncations(
    layout: FileLayout, inode: InodeId, length: int, chain: ChainId, page: Sequence[ListedChunk]
) -> list[ChunkUpdate]:
    last, within = divmod(length, layout.chunk_bytes)
    updates = []
    for row in page:
        kept = within if row.number == last else 0
        if kept and row.length <= kept:
            continue
        kind = storage_pb2.TRUNCATE if kept else storage_pb2.REMOVE
        chunk = ChunkId(inode, row.number)
        updates.append(ChunkUpdate(chain, chunk, kind, layout.chunk_bytes, length=kept, only_version=row.version))
    return updates
